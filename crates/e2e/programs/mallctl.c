/* mallctl, called as in programs written for jemalloc, one behaviour per sub-command: `mallctl
 * NAME` prints "NAME ok" or fails a check. The checks follow jemalloc's manual and behaviour;
 * sub-commands that begin with "own_" check Mallard's own features. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <dirent.h>

#include "check.h"
#include "controls.h"

/* Usually the library is preloaded; with -DALL_SYMBOLS the program is linked with it. */
#ifdef ALL_SYMBOLS
#define MAY_BE_ABSENT
#else
#define MAY_BE_ABSENT __attribute__((weak))
#endif
extern int mallctl(const char *, void *, size_t *, void *, size_t) MAY_BE_ABSENT;
extern int mallctlnametomib(const char *, size_t *, size_t *) MAY_BE_ABSENT;
extern int mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t) MAY_BE_ABSENT;
extern int je_mallctl(const char *, void *, size_t *, void *, size_t) MAY_BE_ABSENT;
extern int je_mallctlnametomib(const char *, size_t *, size_t *) MAY_BE_ABSENT;
extern int je_mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t) MAY_BE_ABSENT;

static void test_version(void) {
    const char *version = GET(const char *, "version");
    unsigned major, minor, bugfix, commits;
    char hash[64];
    CHECK(sscanf(version, "%u.%u.%u-%u-g%63[0-9a-f]", &major, &minor, &bugfix, &commits, hash) ==
          5);
    CHECK(major == 5 && minor >= 3);
}

static void test_config(void) {
    const char *names[] = {"cache_oblivious",
                           "debug",
                           "fill",
                           "lazy_lock",
                           "opt_safety_checks",
                           "prof",
                           "prof_libgcc",
                           "prof_libunwind",
                           "stats",
                           "utrace",
                           "xmalloc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "config.%s", names[i]);
        unsigned char value = 7;
        size_t size = 1;
        CHECK(mallctl(name, &value, &size, NULL, 0) == 0 && value <= 1);
        CHECK(SET(bool, name, true) == EPERM);
    }
    CHECK(GET(bool, "config.stats") && GET(bool, "config.fill") && !GET(bool, "config.utrace"));
    CHECK(GET(const char *, "config.malloc_conf") != NULL);
}

static void test_prof(void) {
    CHECK(!GET(bool, "opt.prof") && GET(bool, "config.prof") && !GET(bool, "prof.active"));
    CHECK(!GET(bool, "prof.gdump") && GET(uint64_t, "prof.interval") == 0 &&
          GET(size_t, "prof.lg_sample") == 19);
    // Sampling starts in a process that was not told of it.
    CHECK(SET(size_t, "prof.reset", 0) == 0 && GET(size_t, "prof.lg_sample") == 0);
    CHECK(SET(bool, "prof.active", true) == 0 && GET(bool, "prof.active"));
    size_t before = GET(size_t, "prof.samples");
    void *sampled = malloc(100), *large = malloc(1 << 20);
    CHECK(sampled != NULL && large != NULL && GET(size_t, "prof.samples") == before + 2);
    CHECK(SET(bool, "prof.active", false) == 0 && !GET(bool, "prof.active"));
    void *unsampled = malloc(100);
    CHECK(GET(size_t, "prof.samples") == before + 2);
    free(sampled), free(large), free(unsampled);
    CHECK(GET(size_t, "prof.samples") == before);
    CHECK(SET(bool, "prof.thread_active_init", false) == 0 &&
          !GET(bool, "prof.thread_active_init"));
    CHECK(SET(bool, "prof.gdump", true) == 0 && GET(bool, "prof.gdump"));
    CHECK(SET(size_t, "prof.reset", 64) == EINVAL && SET(size_t, "prof.reset", 19) == 0);
    CHECK(SET(const char *, "prof.prefix", "/nowhere/x") == 0);
}

/* Of an emulator's own, as far as the first count found them. */
static int others;

static int count_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count - others;
}

enum { LIMIT_MS = 180000 };

static void wait_for_threads(int least) {
    for (int i = 0; i < LIMIT_MS && count_threads() < least; i++)
        usleep(1000);
    CHECK(count_threads() >= least);
}

/* A joined thread stays in the system's list for a moment. */
static void wait_to_be_alone(void) {
    for (int i = 0; i < LIMIT_MS && count_threads() > 1; i++)
        usleep(1000);
    CHECK(count_threads() == 1);
}

/* Started with background_thread:false. */
static void test_background(void) {
    CHECK(!GET(bool, "background_thread") && !GET(bool, "opt.background_thread"));
    if (is_emulated())
        others = count_threads() - 1;
    CHECK(count_threads() == 1);
    for (int round = 0; round < 20; round++) {
        CHECK(SET(bool, "background_thread", true) == 0 && GET(bool, "background_thread"));
        wait_for_threads(2);
        bool old = false, off = false;
        size_t size = sizeof old;
        CHECK(mallctl("background_thread", &old, &size, &off, sizeof off) == 0 && old);
        /* The thread is gone when the call returns. */
        CHECK(!GET(bool, "background_thread"));
        wait_to_be_alone();
        CHECK(SET(bool, "background_thread", false) == 0);
    }
    size_t most = GET(size_t, "opt.max_background_threads");
    CHECK(GET(size_t, "max_background_threads") == most);
    CHECK(SET(size_t, "max_background_threads", 0) == EINVAL);
    CHECK(SET(size_t, "max_background_threads", most + 1) == EINVAL);
    CHECK(SET(size_t, "max_background_threads", 1) == 0 &&
          GET(size_t, "max_background_threads") == 1);
    CHECK(SET(bool, "background_thread", true) == 0);
    wait_for_threads(2);
    /* The child has no background thread, and can start one. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(count_threads() == 1);
        CHECK(SET(bool, "background_thread", false) == 0 &&
              SET(bool, "background_thread", true) == 0);
        wait_for_threads(2);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *ask(void *stop) {
    size_t mib[4], length = 4;
    CHECK(mallctlnametomib("arenas.bin.0.size", mib, &length) == 0);
    for (int i = 0; !__atomic_load_n((int *)stop, __ATOMIC_RELAXED); i++) {
        size_t value, size = sizeof value;
        mib[2] = i % 36;
        CHECK(mallctlbymib(mib, length, &value, &size, NULL, 0) == 0);
        uint64_t epoch = 1, now, before = GET(uint64_t, "epoch");
        size = sizeof now;
        CHECK(mallctl("epoch", &now, &size, &epoch, sizeof epoch) == 0 && now > before);
        CHECK(SET(ssize_t, "arenas.dirty_decay_ms", i % 100) == 0);
        CHECK(SET(bool, "background_thread", i % 8 < 4) == 0);
        free(malloc(value));
    }
    return NULL;
}

/* Calls from several threads at once, with forks among them. */
static void test_threads(void) {
    pthread_t threads[4];
    int stop = 0;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, &stop) == 0);
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            size_t size = GET(size_t, "arenas.page");
            CHECK(SET(uint64_t, "epoch", 1) == 0 && SET(bool, "background_thread", false) == 0);
            free(malloc(size));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Behaviour that jemalloc leaves undefined: null names and MIBs, numbers followed by other
 * characters. */
static void test_own_nulls(void) {
    size_t mib[8], length = 8;
    CHECK(mallctl(NULL, NULL, NULL, NULL, 0) == EINVAL);
    CHECK(mallctlnametomib(NULL, mib, &length) == EINVAL);
    CHECK(mallctlnametomib("epoch", NULL, &length) == EINVAL &&
          mallctlnametomib("epoch", mib, NULL) == EINVAL);
    CHECK(mallctlbymib(NULL, 1, NULL, NULL, NULL, 0) == EINVAL);
    CHECK(mallctlbymib(mib, 1000, NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctl("arenas.bin.0x.size", NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctl("arenas.bin.+1.size", NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctl("arenas.bin. 1.size", NULL, NULL, NULL, 0) == ENOENT);
    CHECK(strstr(GET(const char *, "version"), "mallard") != NULL);
}

static void test_own_prefix(void) {
    size_t page, size = sizeof page, mib[2], length = 2;
    CHECK(je_mallctl("arenas.page", &page, &size, NULL, 0) == 0 &&
          page == GET(size_t, "arenas.page"));
    CHECK(je_mallctlnametomib("arenas.page", mib, &length) == 0 && length == 2);
    page = 0;
    CHECK(je_mallctlbymib(mib, length, &page, &size, NULL, 0) == 0 &&
          page == GET(size_t, "arenas.page"));
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"version", test_version},       {"config", test_config},   {"prof", test_prof},
    {"background", test_background}, {"threads", test_threads}, {"own_nulls", test_own_nulls},
    {"own_prefix", test_own_prefix},
};

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(arguments[1], tests[i].name) == 0) {
            tests[i].run();
            printf("%s ok\n", tests[i].name);
            return 0;
        }
    }
    fprintf(stderr, "mallctl: no test named %s\n", arguments[1]);
    return 2;
}
