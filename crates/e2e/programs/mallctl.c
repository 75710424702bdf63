/* mallctl, called as in programs written for jemalloc, one behaviour per sub-command: `mallctl
 * NAME` prints "NAME ok" or fails a check. The checks follow jemalloc's manual and behaviour;
 * sub-commands that begin with "own_" check Mallard's own features. */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
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

#define ALL 4096
#define DESTROYED 4097

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

/* Started with narenas:3,dirty_decay_ms:1234,muzzy_decay_ms:-1,zero_realloc:alloc,tcache_max:4096,
 * stats_print_opts:Jm,max_background_threads:2,abort_conf:true */
static void test_options(void) {
    CHECK(GET(unsigned, "opt.narenas") == 3);
    CHECK(GET(unsigned, "arenas.narenas") >= 3);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "opt.muzzy_decay_ms") == -1);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "arenas.muzzy_decay_ms") == -1);
    CHECK(strcmp(GET(const char *, "opt.zero_realloc"), "alloc") == 0);
    CHECK(GET(size_t, "opt.tcache_max") == 4096);
    CHECK(GET(size_t, "arenas.tcache_max") == 4096);
    CHECK(strcmp(GET(const char *, "opt.stats_print_opts"), "Jm") == 0);
    CHECK(GET(size_t, "opt.max_background_threads") == 2);
    CHECK(GET(size_t, "max_background_threads") == 2);
    CHECK(GET(bool, "opt.abort_conf") && !GET(bool, "opt.xmalloc") && GET(bool, "opt.tcache"));
    CHECK(strcmp(GET(const char *, "opt.junk"), "false") == 0);
    CHECK(strcmp(GET(const char *, "opt.percpu_arena"), "disabled") == 0);
    CHECK(GET(int64_t, "opt.stats_interval") == -1);
    CHECK(mallctl("opt.nonsense", NULL, NULL, NULL, 0) == ENOENT);
    CHECK(SET(unsigned, "opt.narenas", 4) == EPERM && GET(unsigned, "opt.narenas") == 3);
}

/* As in jemalloc's manual: translate a name once, and then replace one number of the MIB. */
static void test_bins(void) {
    unsigned bins = GET(unsigned, "arenas.nbins"), cached = GET(unsigned, "arenas.nhbins");
    size_t mib[4], length = 4, page = GET(size_t, "arenas.page"), before = 0;
    CHECK(bins > 30 && cached > 0);
    CHECK(mallctlnametomib("arenas.bin.0.size", mib, &length) == 0 && length == 4);
    for (unsigned i = 0; i < bins; i++) {
        size_t bin_size, size = sizeof bin_size;
        mib[2] = i;
        CHECK(mallctlbymib(mib, length, &bin_size, &size, NULL, 0) == 0);
        CHECK(bin_size > before);
        /* A block of that size has exactly this size, and a larger one that of the next class. */
        void *block = malloc(bin_size), *next = malloc(before + 1);
        CHECK(malloc_usable_size(block) == bin_size && malloc_usable_size(next) == bin_size);
        free(block), free(next);
        char name[64];
        snprintf(name, sizeof name, "arenas.bin.%u.nregs", i);
        uint32_t regions = GET(uint32_t, name);
        snprintf(name, sizeof name, "arenas.bin.%u.slab_size", i);
        size_t slab = GET(size_t, name);
        CHECK(slab % page == 0 && regions * bin_size <= slab &&
              (regions + 1) * bin_size > slab - page);
        snprintf(name, sizeof name, "arenas.bin.%u.nshards", i);
        CHECK(GET(uint32_t, name) >= 1);
        before = bin_size;
    }
    size_t beyond, size = sizeof beyond;
    mib[2] = bins;
    CHECK(mallctlbymib(mib, length, &beyond, &size, NULL, 0) == ENOENT);
    mib[2] = SIZE_MAX;
    CHECK(mallctlbymib(mib, length, &beyond, &size, NULL, 0) == ENOENT);

    unsigned large = GET(unsigned, "arenas.nlextents");
    length = 4;
    CHECK(mallctlnametomib("arenas.lextent.0.size", mib, &length) == 0);
    for (unsigned i = 0; i < large; i++) {
        size_t large_size;
        mib[2] = i, size = sizeof large_size;
        CHECK(mallctlbymib(mib, length, &large_size, &size, NULL, 0) == 0);
        CHECK(large_size > before && large_size <= (size_t)PTRDIFF_MAX);
        before = large_size;
    }
    CHECK(before == (size_t)7 << 60);
    CHECK(GET(size_t, "arenas.quantum") == 16 && GET(size_t, "arenas.hugepage") == 2 << 20);
}

static void test_lengths(void) {
    unsigned char room[16];
    size_t size;
    /* If the length is wrong, the call fails, but copies what fits and sets the length to that. */
    size_t page = GET(size_t, "arenas.page");
    for (size = 0; size < sizeof room; size++) {
        size_t told = size, fits = size < 8 ? size : 8;
        memset(room, 0xee, sizeof room);
        CHECK(mallctl("arenas.page", room, &told, NULL, 0) == (size == 8 ? 0 : EINVAL));
        CHECK(told == fits && memcmp(room, &page, fits) == 0);
        for (size_t i = fits; i < sizeof room; i++)
            CHECK(room[i] == 0xee);
    }
    /* Without a buffer, the call succeeds and returns nothing. */
    CHECK(mallctl("arenas.page", NULL, NULL, NULL, 0) == 0);
    CHECK(mallctl("arenas.page", room, NULL, NULL, 0) == 0);
    size = 3;
    CHECK(mallctl("arenas.page", NULL, &size, NULL, 0) == 0 && size == 3);
    /* Passing a new value, or only its length, to a read-only name. */
    size = 8;
    CHECK(mallctl("arenas.page", room, &size, room, 8) == EPERM);
    CHECK(mallctl("arenas.page", NULL, NULL, NULL, 8) == EPERM);
    /* A new value of the wrong length changes nothing. */
    ssize_t decay = GET(ssize_t, "arenas.dirty_decay_ms"), other = 77;
    CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &other, 4) == EINVAL);
    CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &other, 0) == EINVAL);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == decay);
    /* Nor does one if the old value does not fit. */
    size = 4;
    CHECK(mallctl("arenas.dirty_decay_ms", room, &size, &other, sizeof other) == EINVAL);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == decay);
}

static void test_unknown(void) {
    static char endless[1 << 16];
    const char *names[] = {"",
                           ".",
                           "arenas",
                           "arenas.",
                           ".arenas",
                           "arenas..page",
                           "arenas.page.",
                           "arenas.pag",
                           "arenas.pages",
                           "arenas.page.size",
                           "arenas.bin",
                           "arenas.bin.0",
                           "arenas.bin.x.size",
                           "arenas.bin..size",
                           "arenas.bin.-1.size",
                           "arenas.bin.999.size",
                           "arenas.bin.18446744073709551616.size",
                           "arenas.bin.99999999999999999999999.size",
                           "arenas.bin.size",
                           "ARENAS.page",
                           "arenas page",
                           "stats",
                           "opt",
                           "prof",
                           "epoch.epoch",
                           "\xff\xfe",
                           endless};
    size_t mib[8];
    memset(endless, 'a', sizeof endless - 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsigned char room[8];
        size_t size = 8;
        memset(room, 0xee, sizeof room);
        CHECK(mallctl(names[i], room, &size, NULL, 0) == ENOENT);
        CHECK(size == 8 && room[0] == 0xee);
    }
    memset(endless, '.', sizeof endless - 1);
    size_t length = 8;
    CHECK(mallctl(endless, NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctlnametomib(endless, mib, &length) == ENOENT && length == 8);
    CHECK(mallctlnametomib("arenas.nonsense", mib, &length) == ENOENT);
}

static void test_mibs(void) {
    size_t mib[8], length = 8;
    /* A prefix of a name has a MIB, which the caller completes. */
    CHECK(mallctlnametomib("arenas.bin", mib, &length) == 0 && length == 2);
    size_t whole[8], whole_length = 4;
    CHECK(mallctlnametomib("arenas.bin.5.size", whole, &whole_length) == 0 && whole_length == 4);
    CHECK(mib[0] == whole[0] && mib[1] == whole[1] && whole[2] == 5);
    /* A shorter array receives the beginning of a name's MIB. */
    size_t cut[8] = {99, 99, 99, 99};
    length = 2;
    CHECK(mallctlnametomib("arenas.bin.5.size", cut, &length) == 0 && length == 2);
    CHECK(cut[0] == whole[0] && cut[1] == whole[1] && cut[2] == 99);
    /* Incomplete MIBs have no value. */
    size_t value, size = sizeof value;
    for (size_t depth = 0; depth < 4; depth++)
        CHECK(mallctlbymib(whole, depth, &value, &size, NULL, 0) == ENOENT);
    CHECK(mallctlbymib(whole, 4, &value, &size, NULL, 0) == 0);
    size_t by_mib = value;
    CHECK(by_mib == GET(size_t, "arenas.bin.5.size"));
    whole[3] = 1000;
    CHECK(mallctlbymib(whole, 4, &value, &size, NULL, 0) == ENOENT);
    whole[0] = 1000;
    CHECK(mallctlbymib(whole, 4, &value, &size, NULL, 0) == ENOENT);
}

static void test_epoch(void) {
    uint64_t before = GET(uint64_t, "epoch"), epoch = 1, after = 0;
    size_t size = sizeof after;
    CHECK(GET(uint64_t, "epoch") == before);
    CHECK(mallctl("epoch", &after, &size, &epoch, sizeof epoch) == 0);
    CHECK(after == before + 1 && GET(uint64_t, "epoch") == after);
    CHECK(mallctl("epoch", NULL, NULL, &epoch, 4) == EINVAL && GET(uint64_t, "epoch") == after);
}

static void test_decay(void) {
    ssize_t old = 0, new = 500;
    size_t size = sizeof old;
    ssize_t first = GET(ssize_t, "arenas.dirty_decay_ms");
    CHECK(mallctl("arenas.dirty_decay_ms", &old, &size, &new, sizeof new) == 0 && old == first);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == 500);
    CHECK(SET(ssize_t, "arenas.dirty_decay_ms", -2) == EFAULT);
    CHECK(SET(ssize_t, "arenas.dirty_decay_ms", SSIZE_MAX) == EFAULT);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == 500);
    CHECK(SET(ssize_t, "arenas.muzzy_decay_ms", -1) == 0 &&
          GET(ssize_t, "arenas.muzzy_decay_ms") == -1);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == first);
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

static int count_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
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

static void test_errno(void) {
    size_t mib[8], length = 8, size = 1;
    char room[8];
    errno = 12345;
    mallctl("version", NULL, NULL, NULL, 0);
    mallctl("nonsense", NULL, NULL, NULL, 0);
    mallctl("arenas.page", room, &size, NULL, 0);
    mallctl("opt.narenas", NULL, NULL, room, 8);
    mallctlnametomib("arenas.bin.99999999999999999999999", mib, &length);
    uint64_t one = 1;
    mallctl("epoch", NULL, NULL, &one, sizeof one);
    CHECK(errno == 12345);
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

/* Started with dirty_max:20%,reserve:1g,narenas:2,background_thread:auto */
static void test_own_options(void) {
    CHECK(strcmp(GET(const char *, "opt.dirty_max"), "20%") == 0);
    CHECK(GET(size_t, "opt.reserve") == 1 << 30);
    CHECK(GET(bool, "opt.background_thread") && GET(bool, "background_thread"));
    CHECK(GET(size_t, "opt.lg_tcache_max") == 16);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"version", test_version},
    {"config", test_config},
    {"options", test_options},
    {"bins", test_bins},
    {"lengths", test_lengths},
    {"unknown", test_unknown},
    {"mibs", test_mibs},
    {"epoch", test_epoch},
    {"decay", test_decay},
    {"prof", test_prof},
    {"background", test_background},
    {"errno", test_errno},
    {"threads", test_threads},
    {"own_nulls", test_own_nulls},
    {"own_prefix", test_own_prefix},
    {"own_options", test_own_options},
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
