/* The C functions, one behaviour per sub-command: `face NAME` prints "NAME ok" or fails a check.
 *
 * With -DALL_SYMBOLS every function must exist at link time. Without it, those that the system's C
 * library lacks are weak, and a program started without the library says which are absent. */
#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "malloc_more.h"
#include "measured.h"

#ifdef ALL_SYMBOLS
#define MAY_BE_ABSENT
#else
#define MAY_BE_ABSENT __attribute__((weak))
#endif
extern void free_sized(void *, size_t) MAY_BE_ABSENT;
extern void free_aligned_sized(void *, size_t, size_t) MAY_BE_ABSENT;
extern void cfree(void *) MAY_BE_ABSENT;

/* Hides pointers' origins, and absurd sizes, from the compiler. */
static void *volatile sink;
static volatile size_t huge = SIZE_MAX;
static const size_t MEBIBYTE = 1024 * 1024;

static bool is_aligned(const void *p, size_t alignment) {
    return ((uintptr_t)p & (alignment - 1)) == 0;
}

static bool all_are(const unsigned char *p, size_t n, unsigned char value) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] != value)
            return false;
    }
    return true;
}

/* Sizes around every power of two and the midpoints between them, from zero to some MiB. */
static size_t sizes(size_t *out) {
    size_t count = 0;
    for (size_t n = 0; n <= 1100; n++)
        out[count++] = n;
    for (size_t power = 2048; power <= 8 * MEBIBYTE; power *= 2) {
        const size_t around[] = {
            power - 1,        power, power + 1, power + power / 4, power + power / 2 - 1,
            power + power / 2};
        for (size_t i = 0; i < 6; i++)
            out[count++] = around[i];
    }
    return count;
}
static size_t size_list[2000];
static void *blocks[2000];

static void test_malloc(void) {
    size_t count = sizes(size_list);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            size_t n = size_list[i];
            blocks[i] = malloc(n);
            CHECK(blocks[i] != NULL);
            CHECK(is_aligned(blocks[i], n >= alignof(max_align_t) ? alignof(max_align_t) : 8));
            size_t usable = malloc_usable_size(blocks[i]);
            CHECK(usable >= n);
            /* The program may write to all bytes reported as usable. */
            memset(blocks[i], (int)(i * 7 + 1), usable);
        }
        for (size_t i = 0; i < count; i++)
            CHECK(all_are(blocks[i], malloc_usable_size(blocks[i]), (unsigned char)(i * 7 + 1)));
        for (size_t i = 0; i < count; i++)
            free(blocks[(i * 769) % count]);
        CHECK(count % 769 != 0);
    }
}

static void test_zero_size(void) {
    void *a = malloc(0), *b = malloc(0), *c = calloc(0, 100), *d = calloc(100, 0),
         *e = realloc(NULL, 0), *f = NULL;
    CHECK(a != NULL && b != NULL && c != NULL && d != NULL && e != NULL);
    CHECK(a != b && a != c && b != c && c != d && d != e);
    CHECK(posix_memalign(&f, 64, 0) == 0);
    CHECK(is_aligned(f, 64));
    free(a), free(b), free(c), free(d), free(e), free(f);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
}

static void test_calloc(void) {
    size_t count = sizes(size_list);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            size_t n = size_list[i];
            blocks[i] = round % 2 == 0 ? calloc(1, n) : calloc(n, 1);
            CHECK(blocks[i] != NULL);
            CHECK(all_are(blocks[i], n, 0));
            memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
        }
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
    unsigned char *table = calloc(1000, 1000);
    CHECK(table != NULL && all_are(table, 1000 * 1000, 0));
    free(table);
}

/* calloc's memory is zero up to its usable size, because programs use all of it: new and reused
 * blocks of all sizes, also after a realloc. */
static void test_calloc_usable(void) {
    for (int round = 0; round < 3; round++) {
        size_t count = 0;
        for (size_t n = 1; n < 9000000 && count < sizeof blocks / sizeof *blocks;
             n += n < 2000 ? 7 : n / 9 + 1) {
            unsigned char *p = calloc(round + 1, (n + (size_t)round) / ((size_t)round + 1));
            CHECK(p != NULL);
            size_t usable = malloc_usable_size(p);
            CHECK(all_are(p, usable, 0));
            memset(p, 0xee, usable);
            p = realloc(p, usable + 1);
            CHECK(p != NULL && all_are(p, usable, 0xee));
            memset(p, 0xdd, malloc_usable_size(p));
            blocks[count++] = p;
        }
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
}

static void test_overflow(void) {
    errno = 0;
    sink = calloc(huge / 2, 3);
    CHECK(sink == NULL && errno == ENOMEM);
    errno = 0;
    sink = calloc((size_t)1 << 33, (size_t)1 << 33);
    CHECK(sink == NULL && errno == ENOMEM);
    char *kept = malloc(100);
    memset(kept, 'k', 100);
    errno = 0;
    sink = reallocarray(kept, huge / 4, 5);
    CHECK(sink == NULL && errno == ENOMEM);
    CHECK(all_are((unsigned char *)kept, 100, 'k'));
    kept = reallocarray(kept, 70, 10);
    CHECK(kept != NULL && all_are((unsigned char *)kept, 100, 'k') &&
          malloc_usable_size(kept) >= 700);
    free(kept);
}

static void test_exhaustion(void) {
    const size_t impossible[] = {huge,         huge - 1,       huge - 4096,
                                 huge / 2 + 1, huge / 2 - 100, (size_t)1 << 56};
    char *kept = malloc(5000);
    memset(kept, 'k', 5000);
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        size_t n = impossible[i];
        errno = 0, sink = malloc(n);
        CHECK(sink == NULL && errno == ENOMEM);
        errno = 0, sink = calloc(1, n);
        CHECK(sink == NULL && errno == ENOMEM);
        errno = 0, sink = realloc(kept, n);
        CHECK(sink == NULL && errno == ENOMEM);
        errno = 0, sink = memalign(64, n);
        CHECK(sink == NULL && errno == ENOMEM);
        errno = 0, sink = aligned_alloc(4096, n & ~(size_t)4095);
        CHECK(sink == NULL && errno == ENOMEM);
        errno = 0, sink = valloc(n);
        CHECK(sink == NULL && errno == ENOMEM);
        errno = 0, sink = pvalloc(n);
        CHECK(sink == NULL && errno == ENOMEM);
        void *untouched = kept;
        CHECK(posix_memalign(&untouched, 4096, n) == ENOMEM && untouched == kept);
    }
    errno = 0, sink = memalign((size_t)1 << 62, 100);
    CHECK(sink == NULL && errno == ENOMEM);
    CHECK(all_are((unsigned char *)kept, 5000, 'k'));
    free(kept);
}

static void test_realloc(void) {
    size_t count = sizes(size_list);
    unsigned char *p = NULL;
    size_t old = 0;
    for (size_t step = 0; step < 4 * count; step++) {
        size_t n = size_list[(step * 1013) % count] + 1;
        unsigned char value = (unsigned char)(step + 1);
        unsigned char *moved = realloc(p, n);
        CHECK(moved != NULL);
        CHECK(all_are(moved, old < n ? old : n, (unsigned char)(value - 1)));
        p = moved, old = n;
        memset(p, value, malloc_usable_size(p));
    }
    free(p);
    /* Grows stepwise like a vector, far beyond the size from which blocks have their own
     * mappings. */
    p = malloc(16);
    memset(p, 'g', 16);
    for (size_t n = 24; n <= 64 * MEBIBYTE; n += n / 2) {
        p = realloc(p, n);
        CHECK(p != NULL && p[0] == 'g' && all_are(p, 16, 'g'));
        p[n - 1] = 'e';
    }
    for (size_t n = 64 * MEBIBYTE; n >= 16; n /= 3) {
        p = realloc(p, n);
        CHECK(p != NULL && all_are(p, 16, 'g'));
    }
    errno = 1234;
    CHECK(realloc(p, 0) == NULL); /* glibc's meaning: a free */
    CHECK(errno == 1234);
}

static void test_posix_memalign(void) {
    const size_t bad[] = {0, 1, 2, 3, 4, 12, 24, 48, 4095, huge, huge / 2};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *untouched = &errno;
        errno = 1234;
        CHECK(posix_memalign(&untouched, bad[i], 100) == EINVAL);
        CHECK(untouched == &errno && errno == 1234);
    }
    for (size_t alignment = sizeof(void *); alignment <= 4 * MEBIBYTE; alignment *= 2) {
        for (size_t n = 1; n <= 300000; n = n * 5 + 3) {
            void *several[4];
            for (int i = 0; i < 4; i++) {
                CHECK(posix_memalign(&several[i], alignment, n) == 0);
                CHECK(is_aligned(several[i], alignment));
                memset(several[i], i + 1, malloc_usable_size(several[i]));
            }
            for (int i = 0; i < 4; i++) {
                CHECK(all_are(several[i], n, (unsigned char)(i + 1)));
                void *grown = realloc(several[i], n * 2);
                CHECK(grown != NULL && all_are(grown, n, (unsigned char)(i + 1)));
                free(grown);
            }
        }
    }
}

static void test_aligned(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t alignment = 8; alignment <= 1024 * MEBIBYTE; alignment *= 2) {
        unsigned char *a = aligned_alloc(alignment, alignment), *m = memalign(alignment, 77);
        CHECK(a != NULL && is_aligned(a, alignment) && malloc_usable_size(a) >= alignment);
        CHECK(m != NULL && is_aligned(m, alignment) && malloc_usable_size(m) >= 77);
        a[0] = 1, a[alignment - 1] = 2;
        memset(m, 3, 77);
        CHECK(a[0] == 1 && a[alignment - 1] == 2);
        free(m), free(a);
    }
    for (size_t n = 0; n <= 5 * page; n += page / 4 + 1) {
        void *v = valloc(n), *p = pvalloc(n);
        CHECK(v != NULL && is_aligned(v, page) && malloc_usable_size(v) >= n);
        size_t rounded = (n + page - 1) / page * page;
        CHECK(p != NULL && is_aligned(p, page) && malloc_usable_size(p) >= rounded);
        memset(v, 1, n), memset(p, 2, rounded);
        free(v), free(p);
    }
}

static void test_errno_kept(void) {
    size_t count = sizes(size_list);
    for (int round = 0; round < 2; round++) {
        errno = 4321;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = malloc(size_list[i]);
            CHECK(errno == 4321);
            blocks[i] = realloc(blocks[i], size_list[i] * 2 + 100);
            CHECK(errno == 4321);
        }
        for (size_t i = 0; i < count; i++) {
            free(blocks[i]);
            CHECK(errno == 4321);
        }
        free(calloc(300, MEBIBYTE));
        CHECK(errno == 4321);
        void *p = NULL;
        CHECK(posix_memalign(&p, 32 * MEBIBYTE, 100) == 0);
        free(p);
        CHECK(errno == 4321);
    }
}

static void test_sized_frees(void) {
    CHECK(free_sized != NULL && free_aligned_sized != NULL && cfree != NULL);
    size_t count = sizes(size_list);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            void *p = malloc(size_list[i]),
                 *q = aligned_alloc(256, (size_list[i] + 255) & ~(size_t)255),
                 *r = malloc(size_list[i]);
            CHECK(p != NULL && q != NULL && r != NULL && p != q && q != r);
            memset(p, 1, size_list[i]), memset(q, 2, size_list[i]), memset(r, 3, size_list[i]);
            free_sized(p, size_list[i]);
            free_aligned_sized(q, 256, (size_list[i] + 255) & ~(size_t)255);
            cfree(r);
        }
    }
    errno = 77;
    free_sized(NULL, 0), free_sized(NULL, 100), free_aligned_sized(NULL, 64, 128), cfree(NULL);
    CHECK(errno == 77);
}

#ifdef __GLIBC__
static void test_mallinfo(void) {
    struct mallinfo2 before = mallinfo2();
    enum { COUNT = 1000 };
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(50000);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, 50000);
    }
    void *large = malloc(50 * MEBIBYTE);
    CHECK(large != NULL);
    memset(large, 1, 50 * MEBIBYTE);
    struct mallinfo2 during = mallinfo2();
    size_t live_before = before.uordblks + before.hblkhd,
           live_during = during.uordblks + during.hblkhd;
    CHECK(live_during >= live_before + COUNT * 50000 + 50 * MEBIBYTE);
    CHECK(live_during <= live_before + (COUNT * 50000 + 50 * MEBIBYTE) / 10 * 13);
    CHECK(during.arena + during.hblkhd >= live_during);
    struct mallinfo narrow = mallinfo();
    CHECK((size_t)(unsigned)narrow.uordblks + (unsigned)narrow.hblkhd >= COUNT * 50000);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    free(large);
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks + after.hblkhd < live_before + 20 * MEBIBYTE);
}

static void test_malloc_info(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream != NULL);
    CHECK(malloc_info(0, stream) == 0);
    fclose(stream);
    CHECK(length > 20 && strncmp(text, "<malloc", 7) == 0 && strstr(text, "</malloc>") != NULL);
    free(text);
    /* glibc returns the error; the manual says -1 with errno. */
    errno = 0;
    int answer = malloc_info(1, stdout);
    CHECK(answer == EINVAL || (answer == -1 && errno == EINVAL));
}
#endif

static void test_malloc_trim(void) {
    enum { COUNT = 1500 };
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(100000);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, 100000);
    }
    size_t full = resident();
    CHECK(full >= (size_t)COUNT * 100000);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    malloc_trim(0);
    size_t trimmed = resident();
    CHECK(trimmed < full - (size_t)COUNT * 100000 / 10 * 9);
    void *again = malloc(100000);
    CHECK(again != NULL);
    memset(again, 1, 100000);
    free(again);
    int answer = malloc_trim(0);
    CHECK(answer == 0 || answer == 1);
}

#ifdef __GLIBC__
static void test_mallopt(void) {
    CHECK(mallopt(M_MMAP_THRESHOLD, 256 * 1024) == 1);
    CHECK(mallopt(M_TRIM_THRESHOLD, 256 * 1024) == 1);
    CHECK(mallopt(M_ARENA_MAX, 2) == 1);
    test_malloc();
}
#endif

/* Writes to standard error; the caller checks the text. */
static void test_malloc_stats(void) {
    void *p = malloc(MEBIBYTE);
    malloc_stats();
    free(p);
}

static void *one_thread(void *argument) {
    for (int i = 0; i < 2000; i++) {
        size_t n = ((size_t)i * 7919 + (size_t)(uintptr_t)argument) % 70000;
        unsigned char *p = malloc(n);
        CHECK(p != NULL);
        memset(p, i, n);
        if (i % 100 == 0)
            CHECK(all_are(p, n, (unsigned char)i));
        free(p);
    }
    return malloc(100);
}

static void test_threads(void) {
    pthread_t threads[40];
    for (size_t i = 0; i < 40; i++)
        CHECK(pthread_create(&threads[i], NULL, one_thread, (void *)i) == 0);
    for (size_t i = 0; i < 40; i++) {
        void *p;
        CHECK(pthread_join(threads[i], &p) == 0);
        free(p);
    }
}

/* Under a small RLIMIT_AS: memory runs out, calls report it, and frees make it available again. */
static void test_limited(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
    const size_t kinds[] = {48, 3000, 100000, 3 * MEBIBYTE, 48};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        size_t n = kinds[kind], got = 0;
        void **list = NULL;
        for (;;) {
            errno = 0;
            void **block = malloc(n);
            if (block == NULL)
                break;
            memset(block, 0x11, n);
            *block = list, list = block, got += n;
            CHECK(got < limit.rlim_cur);
        }
        CHECK(errno == ENOMEM);
        CHECK(got >= limit.rlim_cur / 4);
        errno = 0;
        CHECK(calloc(1, 40 * MEBIBYTE) == NULL && errno == ENOMEM);
        while (list != NULL) {
            void **next = *list;
            if (n > sizeof *list)
                CHECK(all_are((unsigned char *)(list + 1), n - sizeof *list, 0x11));
            free(list);
            list = next;
        }
    }
    void *again = malloc(8 * MEBIBYTE);
    CHECK(again != NULL);
    memset(again, 1, 8 * MEBIBYTE);
    free(again);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"malloc", test_malloc},           {"zero_size", test_zero_size},
    {"calloc", test_calloc},           {"calloc_usable", test_calloc_usable},
    {"overflow", test_overflow},       {"exhaustion", test_exhaustion},
    {"realloc", test_realloc},         {"posix_memalign", test_posix_memalign},
    {"aligned", test_aligned},         {"errno_kept", test_errno_kept},
    {"sized_frees", test_sized_frees}, {"malloc_trim", test_malloc_trim},
    {"threads", test_threads},         {"malloc_stats", test_malloc_stats},
    {"limited", test_limited},
#ifdef __GLIBC__
    {"mallinfo", test_mallinfo},       {"malloc_info", test_malloc_info},
    {"mallopt", test_mallopt},
#endif
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
    fprintf(stderr, "face: no test named %s\n", arguments[1]);
    return 2;
}
