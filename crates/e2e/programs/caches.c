/* The `thread` names of mallctl and explicit caches: `caches NAME` prints "NAME ok". */
#define _GNU_SOURCE
#include <jemalloc/jemalloc.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"

static uint64_t get_u64(const char *name) {
    uint64_t value = 0;
    size_t length = sizeof value;
    CHECK(mallctl(name, &value, &length, NULL, 0) == 0);
    return value;
}

static unsigned get_unsigned(const char *name) {
    unsigned value = 0;
    size_t length = sizeof value;
    CHECK(mallctl(name, &value, &length, NULL, 0) == 0);
    return value;
}

static int set_unsigned(const char *name, unsigned value) {
    return mallctl(name, NULL, NULL, &value, sizeof value);
}
static int set_bool(const char *name, bool value) {
    return mallctl(name, NULL, NULL, &value, sizeof value);
}
static int act(const char *name) { return mallctl(name, NULL, NULL, NULL, 0); }

static bool get_bool(const char *name) {
    bool value = false;
    size_t length = sizeof value;
    CHECK(mallctl(name, &value, &length, NULL, 0) == 0);
    return value;
}

static uint64_t *get_pointer(const char *name) {
    uint64_t *value = NULL;
    size_t length = sizeof value;
    CHECK(mallctl(name, &value, &length, NULL, 0) == 0);
    return value;
}

/* The counts that the thread must have, according to each call's result. */
static _Thread_local uint64_t allocated, freed;
static void *got(void *block) {
    CHECK(block != NULL);
    allocated += malloc_usable_size(block);
    return block;
}
static void *gone(void *block) {
    freed += malloc_usable_size(block);
    return block;
}

/* Makes each kind of call with various sizes, and compares the live counters after each. */
static void count_everything(void) {
    allocated = get_u64("thread.allocated"), freed = get_u64("thread.deallocated");
    const uint64_t *live_allocated = get_pointer("thread.allocatedp"),
                   *live_freed = get_pointer("thread.deallocatedp");
    const size_t sizes[] = {1, 8, 100, 1000, 5000, 14336, 20000, 40000, 200000, 300000, 5000000};
#define SAME() CHECK(*live_allocated == allocated && *live_freed == freed)
    SAME();
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t n = sizes[i];
            void *p = got(malloc(n)), *q = got(calloc(1, n)), *r = got(aligned_alloc(8192, n)),
                 *s = NULL;
            CHECK(posix_memalign(&s, 64, n) == 0);
            got(s);
            SAME();
            void *x = got(mallocx(n, MALLOCX_ZERO | MALLOCX_TCACHE_NONE));
            void *y = got(mallocx(n, MALLOCX_ARENA(0))), *z = got(mallocx(n, MALLOCX_ALIGN(4096)));
            SAME();
            /* A resized block counts as freed and allocated, even in place; an unchanged one does
             * not. */
            const size_t before = malloc_usable_size(p);
            p = realloc(p, 3 * n);
            CHECK(p != NULL);
            if (malloc_usable_size(p) != before)
                got(p), freed += before;
            SAME();
            const size_t old = malloc_usable_size(x), now = xallocx(x, n / 2 + 1, 0, 0);
            if (now != old)
                allocated += now, freed += old;
            SAME();
            const size_t was = malloc_usable_size(y);
            y = rallocx(y, 2 * n, MALLOCX_TCACHE_NONE);
            if (malloc_usable_size(y) != was)
                got(y), freed += was;
            SAME();
            free(gone(p)), free(gone(q)), free(gone(r)), free_sized(gone(s), n);
            SAME();
            dallocx(gone(x), MALLOCX_TCACHE_NONE), dallocx(gone(y), 0),
                sdallocx(gone(z), n, MALLOCX_ALIGN(4096));
            SAME();
        }
    }
    CHECK(get_u64("thread.allocated") == allocated && get_u64("thread.deallocated") == freed);
}

static void test_counted(void) {
    free(malloc(100));
    CHECK(get_u64("thread.allocated") == 0 && get_u64("thread.deallocated") == 0);
    count_everything();
    CHECK(get_pointer("thread.allocatedp") != get_pointer("thread.deallocatedp"));
}

static void *counting_thread(void *argument) {
    (void)argument;
    CHECK(get_u64("thread.allocated") == 0);
    count_everything();
    return got(malloc(1000));
}

/* Threads start at zero, end while they count, and leave their blocks to other threads. */
static void test_counted_threads(void) {
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, counting_thread, NULL) == 0);
        for (int i = 0; i < 4; i++) {
            void *block = NULL;
            CHECK(pthread_join(threads[i], &block) == 0);
            free(block);
        }
    }
    CHECK(get_u64("thread.allocated") == 0);
}

static void test_counted_fork(void) {
    count_everything();
    const uint64_t before = get_u64("thread.allocated");
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(get_u64("thread.allocated") == before);
            count_everything();
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, counting_thread, NULL) == 0 &&
                  pthread_join(thread, NULL) == 0);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(get_u64("thread.allocated") == before);
}

static void test_peak(void) {
    CHECK(get_u64("thread.peak.read") == 0);
    free(malloc(1 << 20));
    CHECK(get_u64("thread.peak.read") == 1 << 20);
    CHECK(act("thread.peak.reset") == 0 && get_u64("thread.peak.read") == 0);
    void *p = malloc(8192);
    CHECK(get_u64("thread.peak.read") == 8192);
    free(p);
    CHECK(get_u64("thread.peak.read") == 8192 && get_u64("thread.allocated") == (1 << 20) + 8192);
}

static unsigned cache_number;
static void *shared_block;
static void *use_cache(void *argument) {
    (void)argument;
    /* A block that another thread put into the cache comes out of it here. */
    void *p = mallocx(100, MALLOCX_TCACHE(cache_number));
    CHECK(p == shared_block);
    dallocx(p, MALLOCX_TCACHE(cache_number));
    return NULL;
}

static void test_manual_caches(void) {
    const unsigned first = get_unsigned("tcache.create"), second = get_unsigned("tcache.create");
    CHECK(first != second);
    cache_number = second;
    for (size_t n = 1; n < 3000000; n = n * 5 / 4 + 1) {
        for (int zero = 0; zero < 2; zero++) {
            const int flags =
                MALLOCX_TCACHE(first) | (zero ? MALLOCX_ZERO | MALLOCX_ALIGN(16384) : 0);
            unsigned char *p = mallocx(n, flags);
            CHECK(p != NULL && sallocx(p, 0) == nallocx(n, flags) &&
                  (!zero || ((uintptr_t)p & 16383) == 0));
            for (size_t i = 0; zero && i < n; i++)
                CHECK(p[i] == 0);
            memset(p, 0x55, n);
            p = rallocx(p, n + 3000, flags);
            CHECK(p != NULL && p[0] == 0x55 && p[n - 1] == 0x55);
            dallocx(p, MALLOCX_TCACHE(n % 2 ? first : second));
        }
    }
    shared_block = mallocx(100, MALLOCX_TCACHE(second));
    dallocx(shared_block, MALLOCX_TCACHE(second));
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_cache, NULL) == 0 &&
              pthread_join(thread, NULL) == 0);
    }
    CHECK(set_unsigned("tcache.flush", second) == 0 &&
          set_unsigned("tcache.flush", 4000) == EFAULT);
    CHECK(set_unsigned("tcache.destroy", first) == 0 &&
          set_unsigned("tcache.destroy", first) == EFAULT);
    CHECK(get_unsigned("tcache.create") == first && set_unsigned("tcache.destroy", first) == 0);
    CHECK(set_unsigned("tcache.destroy", second) == 0);
    CHECK(mallctl("tcache.create", NULL, NULL, NULL, 0) == EINVAL &&
          mallctl("tcache.flush", NULL, NULL, NULL, 0) == EINVAL);
}

/* An explicit cache survives a fork, whatever another thread was doing with it. */
static volatile bool stop;
static void *churn(void *argument) {
    const int flags = MALLOCX_TCACHE((unsigned)(uintptr_t)argument);
    void *blocks[300];
    while (!stop) {
        for (int i = 0; i < 300; i++)
            blocks[i] = mallocx((size_t)i * 17 % 3000 + 1, flags);
        for (int i = 0; i < 300; i++)
            dallocx(blocks[i], flags);
    }
    return NULL;
}

static void test_cache_fork(void) {
    const unsigned busy = get_unsigned("tcache.create"), still = get_unsigned("tcache.create");
    dallocx(mallocx(100, MALLOCX_TCACHE(still)), MALLOCX_TCACHE(still));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, churn, (void *)(uintptr_t)busy) == 0);
    for (int i = 0; i < 200; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            stop = true;
            for (int n = 1; n < 3000; n += 7) {
                dallocx(mallocx((size_t)n, MALLOCX_TCACHE(busy)), MALLOCX_TCACHE(busy));
                dallocx(mallocx((size_t)n, MALLOCX_TCACHE(still)), MALLOCX_TCACHE(still));
            }
            CHECK(set_unsigned("tcache.destroy", busy) == 0 &&
                  set_unsigned("tcache.destroy", still) == 0);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = true;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Aborts with one line on standard error. */
static void test_destroyed_cache(void) {
    const unsigned number = get_unsigned("tcache.create");
    dallocx(mallocx(100, MALLOCX_TCACHE(number)), MALLOCX_TCACHE(number));
    CHECK(set_unsigned("tcache.destroy", number) == 0);
    void *volatile p = mallocx(100, MALLOCX_TCACHE(number));
    (void)p;
}

static unsigned arena_of(void *block) {
    unsigned arena = 0;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.lookup", &arena, &length, &block, sizeof block) == 0);
    return arena;
}

static void *inherit_nothing(void *expected) {
    CHECK(get_unsigned("thread.arena") != (unsigned)(uintptr_t)expected);
    return NULL;
}

static void test_thread_arena(void) {
    const unsigned home = get_unsigned("thread.arena"), made = get_unsigned("arenas.create");
    char name[64];
    CHECK(home == 0 && made != home);
    free(malloc(100)), free(malloc(20000));
    CHECK(set_unsigned("thread.arena", made) == 0 && get_unsigned("thread.arena") == made);
    const size_t sizes[] = {8, 100, 5000, 20000, 300000, 4000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = malloc(sizes[i]), *q = calloc(1, sizes[i]), *r = aligned_alloc(4096, sizes[i]);
        CHECK(arena_of(p) == made && arena_of(q) == made && arena_of(r) == made);
        p = realloc(p, 2 * sizes[i]);
        CHECK(arena_of(p) == made);
        free(p), free(q), free(r);
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, inherit_nothing, (void *)(uintptr_t)made) == 0 &&
          pthread_join(thread, NULL) == 0);
    /* Not while a thread uses it. */
    snprintf(name, sizeof name, "arena.%u.destroy", made);
    CHECK(act(name) == EFAULT);
    CHECK(set_unsigned("thread.arena", 4000) == EFAULT && get_unsigned("thread.arena") == made);
    unsigned old = 0;
    size_t length = sizeof old;
    CHECK(mallctl("thread.arena", &old, &length, (void *)&home, sizeof home) == 0 && old == made);
    void *p = malloc(100);
    CHECK(arena_of(p) == home && act(name) == 0);
    free(p);
    CHECK(set_unsigned("thread.arena", made) == EFAULT && get_unsigned("thread.arena") == home);
}

static void test_own_cache(void) {
    size_t most = 0, length = sizeof most;
    CHECK(get_bool("thread.tcache.enabled"));
    CHECK(act("thread.tcache.flush") == 0 && act("thread.idle") == 0);
    CHECK(mallctl("thread.tcache.max", &most, &length, NULL, 0) == 0 && most == 65536);
    most = 5000;
    CHECK(mallctl("thread.tcache.max", NULL, NULL, &most, sizeof most) == 0);
    CHECK(mallctl("thread.tcache.max", &most, &length, NULL, 0) == 0 && most == 5120);
    most = SIZE_MAX;
    CHECK(mallctl("thread.tcache.max", NULL, NULL, &most, sizeof most) == 0);
    CHECK(mallctl("thread.tcache.max", &most, &length, NULL, 0) == 0 && most == 262144);
    CHECK(set_bool("thread.tcache.enabled", false) == 0 && !get_bool("thread.tcache.enabled"));
    CHECK(act("thread.tcache.flush") == EFAULT);
    for (int i = 0; i < 1000; i++)
        free(malloc((size_t)i * 50));
    CHECK(set_bool("thread.tcache.enabled", true) == 0 && act("thread.tcache.flush") == 0);
    const char *name = NULL;
    length = sizeof name;
    CHECK(mallctl("thread.prof.name", &name, &length, NULL, 0) == 0 && strlen(name) == 0);
    CHECK(get_bool("thread.prof.active"));
    CHECK(set_bool("thread.prof.active", false) == 0 && !get_bool("thread.prof.active"));
}

/* Under percpu_arena:percpu, the thread is in the arena of the CPU to which it is pinned. */
static void test_percpu(void) {
    cpu_set_t allowed, one;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    const unsigned made = get_unsigned("arenas.create");
    for (int round = 0; round < 3; round++) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &allowed))
                continue;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
            CHECK(get_unsigned("thread.arena") == (unsigned)cpu);
            CHECK(get_unsigned("arenas.narenas") > (unsigned)cpu);
            CHECK(act("thread.tcache.flush") == 0);
            void *p = malloc(3000), *q = malloc(1000000);
            CHECK(arena_of(q) == (unsigned)cpu);
            free(p), free(q);
            CHECK(set_unsigned("thread.arena", cpu == 0) == EPERM);
        }
    }
    CHECK(set_unsigned("thread.arena", made) == 0 && get_unsigned("thread.arena") == made);
}

/* Prints the number of arenas. */
static void test_narenas(void) { printf("%u arenas\n", get_unsigned("arenas.narenas")); }

int main(int count, char **arguments) {
    const struct {
        const char *name;
        void (*test)(void);
    } tests[] = {
        {"counted", test_counted},
        {"counted_threads", test_counted_threads},
        {"counted_fork", test_counted_fork},
        {"peak", test_peak},
        {"manual_caches", test_manual_caches},
        {"cache_fork", test_cache_fork},
        {"destroyed_cache", test_destroyed_cache},
        {"thread_arena", test_thread_arena},
        {"own_cache", test_own_cache},
        {"percpu", test_percpu},
        {"narenas", test_narenas},
    };
    for (size_t i = 0; count > 1 && i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(arguments[1], tests[i].name) != 0)
            continue;
        tests[i].test();
        printf("%s ok\n", arguments[1]);
        return 0;
    }
    return 2;
}
