/* Forks during everything that a program may do: `forks CASE [LIBRARY]`. An alarm ends a hang. With
 * -DHANDLERS=N, a constructor registers that many allocating fork handlers before the first
 * allocation. */
#define _GNU_SOURCE
#include "measured.h"
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { LIMIT_S = 180, BESIDE_MS = 500 };

#ifdef HANDLERS
static __thread void *kept[8];
static void before(void) {
    for (int i = 0; i < 8; i++)
        kept[i] = malloc(50 + i * 40000);
}
static void after(void) {
    for (int i = 0; i < 8; i++) {
        CHECK(kept[i]);
        free(kept[i]);
        kept[i] = 0;
    }
    free(malloc(5 << 20));
}
__attribute__((constructor(101))) static void register_handlers(void) {
    pthread_atfork(before, after, after);
    for (int i = 1; i < HANDLERS; i++)
        pthread_atfork(0, 0, 0);
}
#endif

static atomic_int stop;

/* Allocates blocks of various sizes, and checks their contents. */
static void work(unsigned seed, int rounds) {
    enum { SLOTS = 64 };
    struct {
        unsigned char *p;
        size_t n;
    } slots[SLOTS] = {0};
    unsigned x = seed * 2654435761u + 1;
    for (int i = 0; i < rounds; i++) {
        x = x * 1664525 + 1013904223;
        unsigned k = x >> 26, kind = x >> 8 & 15;
        size_t n = 1 + (x >> 12) % (kind == 0 ? 3000000 : kind < 4 ? 100000 : 2000);
        unsigned char *p = slots[k].p;
        if (p)
            CHECK(p[0] == (unsigned char)k && p[slots[k].n - 1] == (unsigned char)k);
        if (p && kind < 6) {
            p = realloc(p, n);
            CHECK(p && p[0] == (unsigned char)k);
        } else {
            free(p);
            p = 0;
            if (kind == 15) {
                slots[k].p = 0;
                continue;
            }
            if (kind == 14) {
                p = calloc(1, n);
                CHECK(p && p[0] == 0 && p[n / 2] == 0 && p[n - 1] == 0);
            } else if (kind == 13) {
                CHECK(posix_memalign((void **)&p, 256, n) == 0 && (size_t)p % 256 == 0);
            } else {
                p = malloc(n);
            }
            CHECK(p && malloc_usable_size(p) >= n);
        }
        p[0] = p[n - 1] = (unsigned char)k;
        slots[k].p = p;
        slots[k].n = n;
    }
    for (int k = 0; k < SLOTS; k++)
        free(slots[k].p);
}

static void fork_and_wait(void (*child)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(LIMIT_S);
        child();
        _exit(0);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void nothing(void) {}
static void work_in_child(void) { work(7, 300); }

static char file[] = "forks-XXXXXX";

static void *forks(void *child) {
    while (!stop)
        fork_and_wait((void (*)(void))child);
    return 0;
}
static void *reads(void *unused) {
    FILE *stream = fopen(file, "r");
    CHECK(stream);
    while (!stop) {
        char *line = 0;
        size_t room = 0;
        rewind(stream);
        CHECK(getline(&line, &room, stream) > 50000);
        free(line);
    }
    fclose(stream);
    return unused;
}
static void *prints(void *unused) {
    FILE *stream = fopen("/dev/null", "w");
    CHECK(stream);
    /* Allocates while holding the stream's lock. */
    while (!stop)
        CHECK(fprintf(stream, "%5000.3000f %ls\n", 1e300, L"wide text of some length") > 0);
    fclose(stream);
    return unused;
}
static void *flushes(void *unused) {
    while (!stop)
        fflush(0);
    return unused;
}
static void *loads(void *unused) {
    while (!stop) {
        void *library = dlopen("libresolv.so.2", RTLD_NOW);
        if (library)
            dlclose(library);
    }
    return unused;
}
static void *changes_locale(void *unused) {
    while (!stop) {
        locale_t locale = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
        if (locale)
            freelocale(locale);
    }
    return unused;
}

static void run(void *(*of[])(void *), void *with[], int n) {
    pthread_t threads[16];
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], 0, of[i], with[i]) == 0);
    for (long end = now_ms() + BESIDE_MS; now_ms() < end;)
        usleep(10000);
    stop = 1;
    for (int i = 0; i < n; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
}

static void stdio(void) {
    int fd = mkstemp(file);
    FILE *stream = fdopen(fd, "w");
    for (int i = 0; i < 60000; i++)
        fputc('x', stream);
    fputc('\n', stream);
    fclose(stream);
    void *(*of[])(void *) = {forks, reads, reads, prints, flushes, loads, changes_locale};
    void *with[] = {(void *)nothing, 0, 0, 0, 0, 0, 0};
    run(of, with, 7);
    unlink(file);
}

static void *_Atomic handed[64];

/* Another thread frees what this one allocates. */
static void *passes_on(void *seed) {
    unsigned x = (unsigned)(size_t)seed;
    while (!stop) {
        x = x * 1664525 + 1013904223;
        void *mine = malloc(1 + (x >> 8) % 9000);
        CHECK(mine);
        free(atomic_exchange(&handed[x >> 26], mine));
    }
    return 0;
}
static void *works(void *seed) {
    while (!stop)
        work((unsigned)(size_t)seed, 500);
    return 0;
}
static void *is_short(void *unused) {
    free(malloc(100));
    free(malloc(70000));
    return unused;
}
static void *comes_and_goes(void *unused) {
    while (!stop) {
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, is_short, 0) == 0);
        CHECK(pthread_join(thread, 0) == 0);
    }
    return unused;
}

static void beside(void) {
    void *(*of[])(void *) = {forks, forks, works, passes_on, passes_on, comes_and_goes};
    void *with[] = {(void *)work_in_child, (void *)nothing, (void *)1, (void *)2, (void *)3, 0};
    run(of, with, 6);
    for (int i = 0; i < 64; i++)
        free(handed[i]);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    const char *name = argv[1];
    if (argc > 2)
        CHECK(dlopen(argv[2], RTLD_NOW));
    alarm(LIMIT_S);
    if (strcmp(name, "stdio") == 0) {
        stdio();
    } else if (strcmp(name, "beside") == 0) {
        beside();
    } else if (strcmp(name, "alone") == 0) {
        for (int i = 0; i < 30; i++)
            fork_and_wait(work_in_child);
    } else {
        CHECK(!"a case of this name");
    }
    printf("%s ok\n", name);
    return 0;
}
