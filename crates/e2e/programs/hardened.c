/* Blocks of a hardened process or arena: `hardened CASE [BYTES]`. The cases of misuse print the
 * address, and end in the process's end. Linked to no library: with LD_PRELOAD. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((weak)) int mallctl(const char *, void *, size_t *, void *, size_t);
__attribute__((weak)) void *mallocx(size_t, int);
__attribute__((weak)) void dallocx(void *, int);
__attribute__((weak)) void sdallocx(void *, size_t, int);
__attribute__((weak)) void *rallocx(void *, size_t, int);
__attribute__((weak)) size_t xallocx(void *, size_t, size_t, int);
__attribute__((weak)) size_t nallocx(size_t, int);
__attribute__((weak)) void free_sized(void *, size_t);

static size_t bytes;

static char *block(void) {
    char *p = malloc(bytes);
    CHECK(p);
    memset(p, 'b', bytes);
    printf("%p\n", (void *)p);
    fflush(stdout);
    return p;
}

static void twice(void) {
    char *p = block();
    free(p);
    free(p);
}
/* The block is not among those freed last, and was not used again. */
static void twice_late(void) {
    char *p = block();
    free(p);
    for (int i = 0; i < 8; i++)
        free(malloc(bytes));
    free(p);
}
static void *give(void *p) {
    free(p);
    return 0;
}
static void twice_elsewhere(void) {
    char *p = block();
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, give, p) && !pthread_join(thread, 0));
    free(p);
}
static void inside(void) { free(block() + 8); }
static void sized(void) { free_sized(block(), bytes - 1); }
static void over(void) {
    volatile char *p = block();
    p[bytes] = 0;
    free((void *)p);
}
static void over_realloc(void) {
    volatile char *p = block();
    p[bytes] = 1;
    p = realloc((void *)p, bytes * 3);
}
static void under(void) {
    /* One of two lies behind the other. */
    char *p = malloc(bytes), *q = malloc(bytes), *r = block();
    ((volatile char *)r)[-1] ^= 1;
    free(r);
    free(q);
    free(p);
}
static void after(void) {
    volatile char *p = block();
    free((void *)p);
    p[bytes / 2] = 1;
    for (int i = 0; i < 100000; i++)
        free(malloc(bytes));
}

/* All lengths, their usable sizes and contents, through growth and shrinkage. */
static void lengths(void) {
    for (size_t n = 1; n < 70000; n += n < 1200 ? 1 : 977) {
        unsigned char *p = malloc(n);
        CHECK(malloc_usable_size(p) == n && nallocx(n, 0) == n);
        memset(p, (int)n | 1, n);
        p = realloc(p, n + n / 2 + 1);
        CHECK(malloc_usable_size(p) == n + n / 2 + 1);
        for (size_t i = 0; i < n; i++)
            CHECK(p[i] == (unsigned char)(n | 1));
        memset(p, 1, n + n / 2 + 1);
        p = realloc(p, n / 2 + 1);
        CHECK(p[n / 2] == 1);
        memset(p, 2, n / 2 + 1);
        p = rallocx(p, n + 7, 0x40);
        for (size_t i = n / 2 + 1; i < n + 7; i++)
            CHECK(p[i] == 0);
        size_t now = xallocx(p, n + 9, 100, 0);
        CHECK(now == malloc_usable_size(p));
        memset(p, 3, now);
        sdallocx(p, now, 0);
        p = calloc(1, n);
        for (size_t i = 0; i < n; i++)
            CHECK(p[i] == 0);
        memset(p, 4, n);
        free(p);
        for (size_t align = 8; align <= 8192; align *= 4) {
            p = memalign(align, n);
            CHECK((uintptr_t)p % align == 0 && malloc_usable_size(p) >= n);
            memset(p, 5, malloc_usable_size(p));
            free(p);
        }
    }
    puts("ok");
}

/* No block comes back before many others were freed. */
static void delay(void) {
    char *p = malloc(48);
    free(p);
    for (int i = 0; i < 32; i++) {
        char *q = malloc(48);
        CHECK(q != p);
        free(q);
    }
    puts("ok");
}

static void *churn(void *seed) {
    unsigned x = (unsigned)(uintptr_t)seed;
    static __thread char *kept[256];
    for (int i = 0; i < 50000; i++) {
        x = x * 1664525 + 1013904223;
        unsigned k = x >> 24;
        free(kept[k]);
        size_t n = 1 + (x >> 8) % (x % 64 ? 700 : 40000);
        kept[k] = malloc(n);
        memset(kept[k], (int)k, n);
    }
    for (int i = 0; i < 256; i++)
        free(kept[i]);
    return 0;
}
/* What threads that ended had in their rings is used again. */
static void threads(void) {
    for (int round = 0; round < 8; round++) {
        pthread_t all[4];
        for (int i = 0; i < 4; i++)
            CHECK(!pthread_create(&all[i], 0, churn, (void *)(uintptr_t)(round * 4 + i)));
        for (int i = 0; i < 4; i++)
            CHECK(!pthread_join(all[i], 0));
    }
    size_t allocated, length = sizeof allocated;
    uint64_t epoch = 1;
    CHECK(!mallctl("thread.tcache.flush", 0, 0, 0, 0));
    CHECK(!mallctl("epoch", 0, 0, &epoch, sizeof epoch));
    CHECK(!mallctl("stats.allocated", &allocated, &length, 0, 0));
    CHECK(allocated < 1 << 20);
    puts("ok");
}

static unsigned arena(void) {
    unsigned number;
    size_t length = sizeof number;
    _Bool on = 1;
    char name[40];
    CHECK(!mallctl("arenas.create", &number, &length, 0, 0));
    snprintf(name, sizeof name, "arena.%u.hardened", number);
    CHECK(!mallctl(name, 0, 0, &on, sizeof on));
    return number;
}
#define IN(number) ((int)((number) + 1) << 20)

static void arena_lengths(void) {
    unsigned number = arena();
    size_t length = sizeof(_Bool);
    _Bool on;
    char name[40];
    for (size_t n = 1; n < 70000; n += n < 1200 ? 7 : 977) {
        char *p = mallocx(n, IN(number)), *q = malloc(n);
        CHECK(malloc_usable_size(p) == n && malloc_usable_size(q) >= n);
        memset(p, 1, n);
        memset(q, 1, malloc_usable_size(q));
        p = realloc(p, 2 * n);
        CHECK(p[n - 1] == 1);
        free(p);
        free(q);
    }
    snprintf(name, sizeof name, "arena.%u.hardened", number);
    CHECK(!mallctl(name, &on, &length, 0, 0) && on);
    on = 0;
    char *p = mallocx(10, IN(number));
    CHECK(mallctl(name, 0, 0, &on, sizeof on) == EPERM);
    dallocx(p, 0);
    snprintf(name, sizeof name, "arena.%u.destroy", number);
    CHECK(!mallctl(name, 0, 0, 0, 0));
    puts("ok");
}
static void arena_over(void) {
    volatile char *p = mallocx(bytes, IN(arena()));
    printf("%p\n", (void *)p);
    fflush(stdout);
    p[bytes] = 0;
    free((void *)p);
}
static void arena_of_thread(void) {
    unsigned number = arena();
    CHECK(!mallctl("thread.arena", 0, 0, &number, sizeof number));
    for (int i = 0; i < 1000; i++) {
        char *p = malloc(100), *q = calloc(1, 300), *r = memalign(256, 100);
        CHECK(malloc_usable_size(p) == 100 && q[299] == 0 && (uintptr_t)r % 256 == 0);
        memset(p, 1, 100);
        memset(q, 1, 300);
        free(p);
        free(q);
        free(r);
    }
    volatile char *p = block();
    p[bytes] = 0;
    free((void *)p);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"twice", twice},
    {"twice_late", twice_late},
    {"twice_elsewhere", twice_elsewhere},
    {"inside", inside},
    {"sized", sized},
    {"over", over},
    {"over_realloc", over_realloc},
    {"under", under},
    {"after", after},
    {"lengths", lengths},
    {"delay", delay},
    {"threads", threads},
    {"arena_lengths", arena_lengths},
    {"arena_over", arena_over},
    {"arena_of_thread", arena_of_thread},
};

int main(int count, char **arguments) {
    bytes = count > 2 ? strtoul(arguments[2], 0, 10) : 24;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (count > 1 && strcmp(arguments[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    return 2;
}
