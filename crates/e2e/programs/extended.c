/* jemalloc's functions with flags, through jemalloc's header: `extended NAME` prints "NAME ok".
 * Compiled as C and as C++, and linked with the library. With -DPREFIX it calls every function
 * under its name with je_. */
#include <jemalloc/jemalloc.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "malloc_more.h"

#ifdef PREFIX
#define F(name) je_##name
#else
#define F(name) name
#endif

/* The program's options, under either name. */
const char *F(malloc_conf) = "narenas:3";

static int is_aligned(const void *p, size_t alignment) {
    return ((uintptr_t)p & (alignment - 1)) == 0;
}

static int all_are(const void *block, size_t from, size_t to, unsigned char value) {
    const unsigned char *p = (const unsigned char *)block;
    for (size_t i = from; i < to; i++) {
        if (p[i] != value)
            return 0;
    }
    return 1;
}

/* Every size with every combination of alignment, zeroing, no cache and the first arena. */
static void test_combinations(void) {
    const size_t sizes[] = {1,    8,     9,     100,    128,    1000,   4096,
                            5000, 14336, 14337, 100000, 262144, 262145, 3000000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int la = 0; la <= 22; la++) {
            for (int rest = 0; rest < 8; rest++) {
                const int flags = MALLOCX_LG_ALIGN(la) | (rest & 1 ? MALLOCX_ZERO : 0) |
                                  (rest & 2 ? MALLOCX_TCACHE_NONE : 0) |
                                  (rest & 4 ? MALLOCX_ARENA(0) : 0);
                const size_t told = F(nallocx)(sizes[s], flags);
                for (int round = 0; round < 2; round++) {
                    void *p = F(mallocx)(sizes[s], flags);
                    CHECK(p != NULL && is_aligned(p, (size_t)1 << la));
                    CHECK(F(sallocx)(p, 0) == told && told >= sizes[s] &&
                          F(malloc_usable_size)(p) == told);
                    if (flags & MALLOCX_ZERO)
                        CHECK(all_are(p, 0, told, 0));
                    memset(p, 0x77, told);
                    if (round == 0)
                        F(sdallocx)(p, sizes[s], flags);
                    else
                        F(dallocx)(p, flags);
                }
            }
        }
    }
    CHECK(MALLOCX_ALIGN(4096) == MALLOCX_LG_ALIGN(12) &&
          MALLOCX_ALIGN((size_t)1 << 40) == MALLOCX_LG_ALIGN(40));
}

/* A zeroed block that grows with MALLOCX_ZERO is zero beyond the part that the program wrote,
 * however it was allocated. */
static void test_growth_of_zeroed(void) {
    for (int round = 0; round < 8; round++) {
        void *used[300];
        for (size_t i = 0; i < 300; i++) {
            const size_t n = i * i * 3 + 1;
            used[i] = F(malloc)(n);
            CHECK(used[i] != NULL);
            memset(used[i], 0xee, F(malloc_usable_size)(used[i]));
        }
        for (size_t i = 0; i < 300; i++)
            F(free)(used[i]);
        for (size_t n = 1; n < 2000000; n = n * 9 / 8 + 1) {
            const int flags = MALLOCX_ZERO | (round & 1 ? MALLOCX_ALIGN(64) : 0);
            unsigned char *p =
                (unsigned char *)(round & 2 ? F(calloc)(1, n) : F(mallocx)(n, flags));
            CHECK(p != NULL);
            memset(p, 0x11, n);
            size_t written = n;
            for (size_t larger = n + 1; larger < n * 4; larger += larger / 2) {
                if (round & 4)
                    F(xallocx)(p, larger, 0, flags);
                p = (unsigned char *)F(rallocx)(p, larger, flags);
                CHECK(p != NULL && all_are(p, 0, written, 0x11));
                CHECK(all_are(p, written, F(sallocx)(p, 0), 0));
                memset(p, 0x11, larger);
                written = larger;
            }
            memset(p, 0xdd, F(sallocx)(p, 0));
            F(dallocx)(p, 0);
        }
    }
}

static void test_xallocx(void) {
    void *small = F(mallocx)(100, 0);
    CHECK(F(xallocx)(small, 100, 0, 0) == 112 && F(xallocx)(small, 200, 0, 0) == 112 &&
          F(xallocx)(small, 1, 0, 0) == 112);
    F(dallocx)(small, 0);
    unsigned char *p = (unsigned char *)F(mallocx)(8 << 20, 0);
    memset(p, 1, 8 << 20);
    const size_t shrunk = F(xallocx)(p, 1 << 20, 0, 0);
    CHECK(shrunk == 1 << 20 && F(sallocx)(p, 0) == shrunk);
    const size_t grown = F(xallocx)(p, 1500000, 500000, MALLOCX_ZERO);
    CHECK(grown == F(nallocx)(2000000, 0));
    CHECK(all_are(p, 0, shrunk, 1) && all_are(p, shrunk, grown, 0));
    CHECK(F(xallocx)(p, SIZE_MAX / 2, SIZE_MAX / 2, 0) == grown);
    F(dallocx)(p, 0);
}

static void test_refusals(void) {
    /* Hides the absurd size from the compiler. */
    static volatile size_t huge = SIZE_MAX;
    void *p = F(mallocx)(100, 0);
    CHECK(F(mallocx)(huge, 0) == NULL && F(mallocx)(huge / 2 + 1, MALLOCX_ZERO) == NULL);
    CHECK(F(mallocx)(100, MALLOCX_LG_ALIGN(63)) == NULL &&
          F(mallocx)(100, MALLOCX_ARENA(4000)) == NULL);
    CHECK(F(nallocx)(huge, 0) == 0 && F(nallocx)(1, MALLOCX_LG_ALIGN(63)) == 0);
    CHECK(F(smallocx)(huge, 0).ptr == NULL && F(smallocx)(huge, 0).size == 0);
    void *moved = F(rallocx)(p, huge, 0);
    CHECK(moved == NULL && F(sallocx)(p, 0) == 112);
    F(sdallocx)(p, 100, 0);
}

static void test_smallocx(void) {
    for (size_t n = 1; n < 3000000; n += n / 3 + 1) {
        const smallocx_return_t got = F(smallocx)(n, MALLOCX_ALIGN(64));
        CHECK(got.ptr != NULL && is_aligned(got.ptr, 64) && got.size == F(sallocx)(got.ptr, 0));
        F(sdallocx)(got.ptr, got.size, MALLOCX_ALIGN(64));
    }
}

/* The C library's functions under their prefixed names. */
static void test_prefixed(void) {
    char *p = (char *)je_malloc(100), *q = (char *)je_calloc(10, 10),
         *r = (char *)je_aligned_alloc(64, 64);
    void *s = NULL;
    CHECK(p != NULL && all_are(q, 0, 100, 0) && is_aligned(r, 64));
    CHECK(je_posix_memalign(&s, 4096, 10) == 0 && is_aligned(s, 4096) &&
          je_posix_memalign(&s, 3, 10) == EINVAL);
    strcpy(p, "kept");
    p = (char *)je_realloc(p, 100000);
    CHECK(strcmp(p, "kept") == 0 && je_malloc_usable_size(p) == malloc_usable_size(p));
    free(p), je_free(q), je_free_sized(je_malloc(30), 30), je_free_aligned_sized(r, 64, 64),
        je_free(s);
    free(je_memalign(256, 1)), free(je_valloc(1)), free(je_pvalloc(1)),
        free(je_reallocarray(NULL, 3, 5));
}

static char messages[4096];
static void listen(void *opaque, const char *text) {
    CHECK(opaque == NULL);
    strncat(messages, text, sizeof messages - strlen(messages) - 1);
}

/* Once the program sets its function, under either name, the library's messages go there. */
static void test_message(void) {
    CHECK(malloc_message == NULL && je_malloc_message == NULL);
    malloc_message = listen;
    malloc_stats();
    CHECK(strstr(messages, "allocated") != NULL && messages[strlen(messages) - 1] == '\n');
    messages[0] = 0;
    malloc_message = NULL;
    je_malloc_message = listen;
    malloc_stats();
    CHECK(strstr(messages, "allocated") != NULL);
    messages[0] = 0;
    F(malloc_stats_print)(NULL, NULL, "J");
    CHECK(messages[0] == '{');
}

/* The program's own options take effect, and the controls work. */
static void test_options(void) {
    unsigned narenas = 0;
    size_t length = sizeof narenas, mib[2], depth = 2;
    CHECK(F(mallctl)("opt.narenas", &narenas, &length, NULL, 0) == 0 && narenas == 3);
    narenas = 0;
    CHECK(F(mallctlnametomib)("opt.narenas", mib, &depth) == 0 && depth == 2);
    CHECK(F(mallctlbymib)(mib, depth, &narenas, &length, NULL, 0) == 0 && narenas == 3);
}

int main(int count, char **arguments) {
    const struct {
        const char *name;
        void (*test)(void);
    } tests[] = {
        {"combinations", test_combinations}, {"growth_of_zeroed", test_growth_of_zeroed},
        {"xallocx", test_xallocx},           {"refusals", test_refusals},
        {"smallocx", test_smallocx},         {"prefixed", test_prefixed},
        {"message", test_message},           {"options", test_options},
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
