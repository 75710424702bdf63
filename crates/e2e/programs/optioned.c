/* Shows the effect of an option: `optioned NAME`. With -DCONF=... the program contains its own
 * options, as programs written for jemalloc do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "malloc_more.h"
#include "measured.h"

#ifdef CONF
const char *malloc_conf = CONF;
#endif

/* The first bytes of a block that was used, freed and allocated again. */
static void show_contents(size_t n) {
    for (int i = 0; i < 50; i++) {
        unsigned char *p = malloc(n);
        CHECK(p != NULL);
        memset(p, 0x77, n);
        free(p);
    }
    unsigned char *p = malloc(n);
    CHECK(p != NULL);
    unsigned char first = p[0];
    int same = 1;
    for (size_t i = 0; i < n; i++)
        same &= p[i] == first;
    printf("%zu: %s 0x%02x\n", n, same ? "all" : "mixed", first);
    free(p);
}

/* Allocates a block of the size that the argument points to. */
static void *take(void *size) { return malloc(*(size_t *)size); }

/* Whether a freed block stays with its thread or goes to the next thread that allocates one. */
static void show_kept(size_t n) {
    void *p = malloc(n), *q;
    CHECK(p != NULL);
    free(p);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, take, &n) == 0);
    CHECK(pthread_join(other, &q) == 0);
    printf("%zu %s\n", n, p == q ? "shared" : "kept");
    free(q);
}

/* The number of a block's arena. */
static unsigned arena_of(void *block) {
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    *(void **)&mallctl = dlsym(RTLD_DEFAULT, "mallctl");
    CHECK(mallctl != NULL);
    unsigned arena;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.lookup", &arena, &length, &block, sizeof block) == 0);
    return arena;
}

/* The advice given for the mapping of an address: `hg` for huge pages, `nh` against them. */
static const char *asked_at(void *address) {
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    char line[512];
    int inside = 0;
    const char *asked = "gone";
    while (fgets(line, sizeof line, file) != NULL) {
        size_t from, to;
        if (sscanf(line, "%zx-%zx ", &from, &to) == 2)
            inside = from <= (size_t)address && (size_t)address < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            asked = strstr(line, " hg") != NULL ? "hg" : strstr(line, " nh") != NULL ? "nh" : "--";
    }
    fclose(file);
    return asked;
}

/* A number of `/proc/self/statm`, in bytes: 0 for all addresses, 5 for those that can be
 * written. */
static size_t of_statm(int which) {
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL);
    size_t pages = 0;
    for (int i = 0; i <= which; i++)
        CHECK(fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Whether any mapping has been advised to use huge pages. */
static int any_asks_for_huge_pages(void) {
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    char line[512];
    int any = 0;
    while (fgets(line, sizeof line, file) != NULL)
        any |= strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL;
    fclose(file);
    return any;
}

static void *thread_work(void *argument) {
    unsigned char *blocks[200];
    for (int round = 0; round < 30; round++) {
        for (unsigned i = 0; i < 200; i++) {
            size_t n =
                (i * 7919u * (unsigned)(round + 1) + (unsigned)(uintptr_t)argument) % 50000 + 1;
            blocks[i] = malloc(n);
            CHECK(blocks[i] != NULL);
            blocks[i][0] = (unsigned char)i, blocks[i][n - 1] = (unsigned char)i;
        }
        for (unsigned i = 0; i < 200; i++) {
            CHECK(blocks[i][0] == (unsigned char)i);
            free(blocks[i]);
        }
    }
    return NULL;
}

static void *live_together(void *barrier) {
    free(malloc(100));
    pthread_barrier_wait(barrier);
    return NULL;
}

/* Has allocated when it first waits, and ends when it has waited again. */
static void *live_beside(void *barrier) {
    live_together(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* Writes to blocks as it allocates them, and prints how many resident pages follow them, at first
 * and later. */
static void show_ahead(void) {
    enum { SIZE = 64, EARLY = 1000, MOST = 20000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), early = 0, late = 0;
    for (int i = 0; i < MOST; i++) {
        char *p = malloc(SIZE);
        CHECK(p != NULL);
        memset(p, 1, SIZE);
        unsigned char there = 1;
        size_t ahead = 0;
        for (char *at = p; there && ahead < 64; at += page, ahead++)
            there = mincore((char *)((uintptr_t)at & ~(page - 1)), page, &there) == 0 && there & 1;
        size_t *most = i < EARLY ? &early : &late;
        *most = ahead > *most ? ahead : *most;
    }
    /* MADV_POPULATE_WRITE, Linux 5.14. */
    const char *otherwise = madvise(malloc(1 << 20), 0, 23) == 0 ? "little" : "cannot";
    printf("%s %s\n", early > 4 ? "much" : "little", late > 4 ? "much" : otherwise);
}

/* Threads allocate 48 MiB with the process's memory locked, to see how much is resident. */
static void *take_24_mib(void *unused) {
    (void)unused;
    for (int i = 0; i < 24 << 7; i++) {
        char *p = malloc(8192);
        CHECK(p != NULL);
        memset(p, 1, 8192);
    }
    return NULL;
}

static void show_locked(void) {
    pthread_t threads[2];
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        printf("cannot\n");
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, take_24_mib, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%s\n", resident() > (size_t)110 << 20 ? "far ahead" : "by steps");
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "nothing";
    if (strcmp(name, "nothing") == 0) {
        free(malloc(100));
    } else if (strcmp(name, "contents") == 0) {
        show_contents(64), show_contents(5000), show_contents(300000);
    } else if (strcmp(name, "zero_realloc") == 0) {
        void *p = realloc(malloc(100), 0);
        printf("%s\n", p == NULL ? "null" : "block");
        free(p);
    } else if (strcmp(name, "exhaust") == 0) {
        volatile size_t n = SIZE_MAX / 4;
        void *volatile p = malloc(n);
        printf("%s\n", p == NULL ? "null" : "block");
    } else if (strcmp(name, "freed_resident") == 0) {
        enum { COUNT = 2000 };
        static void *blocks[COUNT];
        for (int i = 0; i < COUNT; i++)
            blocks[i] = memset(malloc(60000), 1, 60000);
        size_t full = resident();
        for (int i = 0; i < COUNT; i++)
            free(blocks[i]);
        printf("%s\n", resident() > full / 2 ? "kept" : "returned");
    } else if (strcmp(name, "usable") == 0) {
        size_t sizes[] = {200000, 262145, 3145729, 3145729 + 500000};
        void *p = NULL;
        for (int i = 0; i < 4; i++) {
            void *q = malloc(sizes[i]);
            p = realloc(p, sizes[i]);
            CHECK(p != NULL && q != NULL && malloc_usable_size(p) == malloc_usable_size(q));
            memset(p, 1, malloc_usable_size(p));
            printf("%zu ", malloc_usable_size(p));
            free(q);
        }
        printf("\n");
        free(p);
    } else if (strcmp(name, "calloc_resident") == 0) {
        enum { SIZE = 64 << 20 };
        char *p = malloc(SIZE);
        CHECK(p != NULL);
        free(memset(p, 1, SIZE));
        p = calloc(1, SIZE);
        CHECK(p != NULL);
        printf("%s\n", resident() > SIZE / 2 ? "filled" : "cleared");
        for (int i = 0; i < SIZE; i++)
            CHECK(p[i] == 0);
        free(p);
    } else if (strcmp(name, "oversize") == 0) {
        enum { SIZE = 16 << 20 };
        void *small = malloc(100), *large = malloc(SIZE);
        CHECK(small != NULL && large != NULL);
        unsigned small_arena = arena_of(small), large_arena = arena_of(large);
        memset(large, 1, SIZE);
        size_t full = resident();
        free(large), free(small);
        printf("%s %s\n", small_arena == large_arena ? "together" : "apart",
               resident() + SIZE / 2 > full ? "kept" : "returned");
    } else if (strcmp(name, "kept_blocks") == 0) {
        show_kept(600), show_kept(3000), show_kept(12000), show_kept(50000);
    } else if (strcmp(name, "huge_pages") == 0) {
        enum { SIZE = 64 << 20 };
        void *small = malloc(100);
        char *large = malloc(SIZE);
        CHECK(small != NULL && large != NULL);
        memset(large, 1, SIZE);
        printf("%s %s\n", asked_at(small), asked_at(large + SIZE - 1));
    } else if (strcmp(name, "ahead") == 0) {
        show_ahead();
    } else if (strcmp(name, "ahead_of_threads") == 0) {
        pthread_t thread;
        pthread_barrier_t both;
        CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
        CHECK(pthread_create(&thread, NULL, live_beside, &both) == 0);
        pthread_barrier_wait(&both);
        show_ahead();
        pthread_barrier_wait(&both);
        CHECK(pthread_join(thread, NULL) == 0);
    } else if (strcmp(name, "locked") == 0) {
        show_locked();
    } else if (strcmp(name, "addresses") == 0) {
        free(malloc(100));
        printf("%zu\n", of_statm(0) >> 20);
    } else if (strcmp(name, "retained") == 0) {
        enum { SIZE = 64 << 20 };
        size_t before = of_statm(5);
        char *p = malloc(SIZE);
        CHECK(p != NULL);
        free(memset(p, 1, SIZE));
        malloc_trim(0);
        CHECK(resident() < SIZE / 2);
        printf("%s\n", of_statm(5) > before + SIZE / 2 ? "retained" : "given up");
        CHECK((p = malloc(SIZE)) != NULL);
        free(memset(p, 1, SIZE));
    } else if (strcmp(name, "freed") == 0) {
        unsigned char *volatile p = malloc(5000);
        CHECK(p != NULL);
        memset(p, 0x77, 5000);
        free(p);
        printf("0x%02x\n", p[2500]);
    } else if (strcmp(name, "huge_metadata") == 0) {
        free(malloc(100));
        printf("%s\n", any_asks_for_huge_pages() ? "asked" : "not asked");
    } else if (strcmp(name, "double_free") == 0) {
        void *volatile p = malloc(100), *volatile others[5];
        for (int i = 0; i < 5; i++)
            others[i] = malloc(100);
        free(p);
        for (int i = 0; i < 5; i++)
            free(others[i]);
        free(p);
        printf("not seen\n");
        fflush(stdout);
        _exit(0);
    } else if (strcmp(name, "threads") == 0) {
        pthread_t threads[24];
        for (size_t i = 0; i < 24; i++)
            CHECK(pthread_create(&threads[i], NULL, thread_work, (void *)i) == 0);
        for (size_t i = 0; i < 24; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        printf("threads ok\n");
    } else if (strcmp(name, "arenas") == 0) {
        /* All threads live at once, so that they spread over all arenas, and so does this one: not
         * every C library allocates for it before. */
        free(malloc(1));
        pthread_t threads[24];
        pthread_barrier_t together;
        CHECK(pthread_barrier_init(&together, NULL, 24) == 0);
        for (size_t i = 0; i < 24; i++)
            CHECK(pthread_create(&threads[i], NULL, live_together, &together) == 0);
        for (size_t i = 0; i < 24; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        malloc_stats();
    } else {
        return 2;
    }
    return 0;
}
