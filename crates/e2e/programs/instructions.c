/* The scenarios for counting instructions (tests/instructions.rs). Each prepares a state and then
 * calls the allocator from `counted`, the function that callgrind collects. Only the library's own
 * instructions are summed, without this program's and the C library's.
 *
 *     instructions SCENARIO        prints how many operations were counted
 *     instructions                 lists the scenarios
 *
 * Everything is deterministic: one thread at a time, the program's own random numbers, and its own
 * clock (below), which moves only when the program advances it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

/* ---- the clock ------------------------------------------------------------------------------- */

/* What caches return and how pages decay depends on time. The library asks the kernel, and valgrind
 * hides the function that the kernel maps for that, so it makes a system call. The program's
 * function precedes the C library's in symbol lookup, also for a preloaded library. */
static uint64_t clock_ms = 1000 * 1000;

long syscall(long number, ...) {
    long a[6], result;
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_clock_gettime) {
        struct timespec *t = (struct timespec *)a[1];
        t->tv_sec = (time_t)(clock_ms / 1000);
        t->tv_nsec = (long)(clock_ms % 1000) * 1000000;
        return 0;
    }
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* ---- the counted function -------------------------------------------------------------------- */

static uint64_t operations;

/* callgrind counts the library's instructions within this function. */
__attribute__((noinline)) void counted(void (*work)(size_t), size_t n) {
    work(n);
    /* Prevents a tail call, which would end the function before its work begins. */
    __asm__ volatile("" ::: "memory");
}

static void count(void (*work)(size_t), size_t n) {
    counted(work, n);
    operations += n;
}

enum { MOST = 200 * 1000 };
static void *blocks[MOST];
static size_t size;
static void *(*allocate)(size_t);
static void (*release)(void *);

static void take(size_t n) {
    for (size_t i = 0; i < n; i++)
        blocks[i] = allocate(size);
}

static void give(size_t n) {
    for (size_t i = 0; i < n; i++)
        release(blocks[i]);
}

static void check_all(size_t n) {
    for (size_t i = 0; i < n; i++)
        CHECK(blocks[i] != NULL);
}

static void *cleared(size_t n) { return calloc(1, n); }

static void *aligned(size_t n) {
    void *block = NULL;
    return posix_memalign(&block, 64, n) == 0 ? block : NULL;
}

static void reallocate_in_place(size_t n) {
    /* Alternates between two sizes of one class. */
    for (size_t i = 0; i < n; i++)
        blocks[0] = realloc(blocks[0], size - (i & 1));
}

/* ---- the fast paths -------------------------------------------------------------------------- */

/* Takes and frees a few blocks at a time, which fit in the thread's cache once it is warm. Counts
 * either the allocations or the frees. */
enum { FEW = 4, ROUNDS = 2500 };

static void cached(int taking) {
    for (int i = 0; i < 200; i++) {
        take(FEW);
        check_all(FEW);
        give(FEW);
    }
    for (int i = 0; i < ROUNDS; i++) {
        taking ? count(take, FEW) : take(FEW);
        taking ? give(FEW) : count(give, FEW);
    }
}

static void cached_operators(int taking) {
    /* Looked up at run time to avoid linking the C++ library, whose start allocates. */
    allocate = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znwm");
    release = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZdlPv");
    CHECK(allocate != NULL && release != NULL);
    cached(taking);
}

/* jemalloc's functions without flags, or the plain ones if the allocator lacks them. */
static void *(*take_flagged)(size_t, int);
static void (*give_flagged)(void *, int);
static void *take_without_flags(size_t n) { return take_flagged(n, 0); }
static void give_without_flags(void *block) { give_flagged(block, 0); }

static void cached_flagged(int taking) {
    take_flagged = (void *(*)(size_t, int))dlsym(RTLD_DEFAULT, "mallocx");
    give_flagged = (void (*)(void *, int))dlsym(RTLD_DEFAULT, "dallocx");
    if (take_flagged != NULL && give_flagged != NULL) {
        allocate = take_without_flags;
        release = give_without_flags;
    }
    cached(taking);
}

/* Frees with the block's size, or without one if the allocator lacks that. */
static void (*give_with_size)(void *, size_t);
static void give_sized(void *block) { give_with_size(block, size); }

static void cached_sized(int taking) {
    give_with_size = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    if (give_with_size != NULL)
        release = give_sized;
    cached(taking);
}

static void control(const char *name, void *old, size_t *length, void *new, size_t bytes) {
    typedef int mallctl(const char *, void *, size_t *, void *, size_t);
    mallctl *call = (mallctl *)dlsym(RTLD_DEFAULT, "mallctl");
    if (call != NULL)
        CHECK(call(name, old, length, new, bytes) == 0);
}

/* The thread requests its live counters, so that each call counts its bytes. */
static void cached_counting(int taking) {
    uint64_t *counter = NULL;
    size_t length = sizeof counter;
    control("thread.allocatedp", &counter, &length, NULL, 0);
    cached(taking);
}

/* The heap profiler samples, but so seldom that no sample is taken. */
static void sample(void) {
    size_t distance = 60;
    bool on = true;
    control("prof.reset", NULL, NULL, &distance, sizeof distance);
    control("prof.active", NULL, NULL, &on, sizeof on);
}

static void sampled(int taking) {
    sample();
    cached(taking);
}

static void sampled_sized(int taking) {
    sample();
    cached_sized(taking);
}

static void sampled_operators(int taking) {
    sample();
    cached_operators(taking);
}

/* Each request is sampled, from a call stack of so many frames. They include those of the C
 * library, whose number differs, so that the program's own are made to fit. */
enum { FRAMES = 8, SAMPLED_ROUNDS = 500 };
static unsigned frames_told;
static int frames_more;

static void tell_frames(const void *block, size_t bytes, const uintptr_t *stack, unsigned frames,
                        size_t usable) {
    (void)block, (void)bytes, (void)stack, (void)usable;
    frames_told = frames;
}

__attribute__((noinline)) static void *from_deep(size_t n, int more) {
    void *block = more > 0 ? from_deep(n, more - 1) : malloc(n);
    /* Prevents tail calls. */
    __asm__ volatile("" ::: "memory");
    return block;
}

static void *take_deep(size_t n) { return from_deep(n, frames_more); }

/* Like `counted`, but callgrind does not know it. */
__attribute__((noinline)) static void uncounted(void (*work)(size_t), size_t n) {
    work(n);
    __asm__ volatile("" ::: "memory");
}

static void *in_thread(void *unused) {
    void (*volatile through)(void (*)(size_t), size_t) = uncounted;
    void (*hook)(const void *, size_t, const uintptr_t *, unsigned, size_t) = tell_frames;
    /* The mean distance is far less than a block's size. */
    size_t distance = 4;
    bool on = true;
    allocate = take_deep;
    control("prof.reset", NULL, NULL, &distance, sizeof distance);
    control("experimental.hooks.prof_sample", NULL, NULL, &hook, sizeof hook);
    control("prof.active", NULL, NULL, &on, sizeof on);
    through(take, 1);
    give(1);
    if (frames_told != 0) {
        CHECK(frames_told <= FRAMES);
        frames_more = FRAMES - (int)frames_told;
        through(take, 1);
        give(1);
        CHECK(frames_told == FRAMES);
    }
    hook = NULL;
    control("experimental.hooks.prof_sample", NULL, NULL, &hook, sizeof hook);
    for (int i = 0; i < 2 * SAMPLED_ROUNDS; i++) {
        through = i < SAMPLED_ROUNDS ? uncounted : counted;
        through(take, FEW);
        check_all(FEW);
        give(FEW);
    }
    operations = SAMPLED_ROUNDS * FEW;
    return unused;
}

/* In a thread, whose stack the C library has few frames of. */
static void each_sampled(int unused) {
    (void)unused;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void cached_zeroed(int taking) {
    allocate = cleared;
    cached(taking);
}

static void cached_aligned(int taking) {
    allocate = aligned;
    cached(taking);
}

static void resized(int unused) {
    (void)unused;
    take(1);
    check_all(1);
    count(reallocate_in_place, FEW * ROUNDS);
    CHECK(blocks[0] != NULL);
}

/* ---- the layers below ------------------------------------------------------------------------ */

/* Takes many blocks and then frees them, more than thread caches and transfer caches could
 * serve. */
static void bulk(size_t n, int taking) {
    taking ? count(take, n) : take(n);
    check_all(n);
    taking ? give(n) : count(give, n);
}

static void bulk_small(int taking) { bulk(100 * 1000, taking); }

/* The largest blocks that slabs serve. Few fit in a slab, so slabs come and go. */
static void bulk_slabs(int taking) { bulk(4000, taking); }

/* More blocks than a thread cache holds but few enough for the transfer cache pass from one thread
 * to another, which does the uncounted half. The two take turns. */
enum { PASSED = 1500 };
static sem_t begin, done;

static void *other_half(void *taking) {
    for (;;) {
        sem_wait(&begin);
        taking ? give(PASSED) : take(PASSED);
        sem_post(&done);
    }
    return NULL;
}

static void others_turn(void) {
    sem_post(&begin);
    while (sem_wait(&done) != 0)
        ;
}

static void stored(int taking) {
    static char flag;
    pthread_t other;
    CHECK(sem_init(&begin, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    CHECK(pthread_create(&other, NULL, other_half, taking ? &flag : NULL) == 0);
    for (int i = 0; i < 100; i++) {
        if (taking) {
            count(take, PASSED);
            check_all(PASSED);
            others_turn();
        } else {
            others_turn();
            check_all(PASSED);
            count(give, PASSED);
        }
    }
}

static void in_rounds(void (*take_some)(size_t), int taking) {
    enum { SOME = 64 };
    for (int i = 0; i < 60; i++) {
        taking ? count(take_some, SOME) : take_some(SOME);
        check_all(SOME);
        taking ? give(SOME) : count(give, SOME);
    }
}

/* More blocks of whole pages than a thread keeps: half of them pass the transfer cache. */
static void kept(int taking) { in_rounds(take, taking); }

/* Blocks that bypass the caches, in an order that leaves holes and closes them again. */
static void take_scattered(size_t n) {
    for (size_t i = 0; i < n; i++)
        blocks[i * 37 % n] = malloc(size + i % 7 * size / 4);
}

static void large(int taking) { in_rounds(take_scattered, taking); }

/* ---- the mixed trace ------------------------------------------------------------------------- */

static uint64_t draws = UINT64_C(0x9E3779B97F4A7C15);

static uint64_t draw(uint64_t below) {
    draws ^= draws << 13;
    draws ^= draws >> 7;
    draws ^= draws << 17;
    return ((draws >> 32) * below) >> 32;
}

/* Mostly small, sometimes large: a random power of two, and a uniform distribution up to the
 * next. */
static size_t mixed_size(void) {
    static const unsigned char bits[32] = {4, 4, 4, 5, 5, 5, 5, 5, 5,  6,  6,  6,  6,  6,  7,  7,
                                           7, 7, 8, 8, 8, 9, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14};
    size_t top = (size_t)1 << bits[draw(32)];
    if (draw(512) == 0)
        top = (size_t)1 << (15 + draw(6));
    return 1 + (size_t)draw(top);
}

static void replace(void **slot) {
    free(*slot);
    *slot = malloc(mixed_size());
}

/* Blocks of three lifetimes: short in a ring of 16, medium in 1,000 slots, long in 8,000. Every
 * eighth operation resizes a block, every eleventh requests zeros, and every 256th frees 500 blocks
 * in a row. A millisecond passes every 50 operations. */
static void mix(size_t n) {
    enum { RING = 16, MEDIUM = 1000, LONG = 8000 };
    void **ring = blocks, **medium = ring + RING, **longer = medium + MEDIUM;
    for (size_t i = 0; i < n; i++) {
        uint64_t kind = draw(16);
        void **slot = kind < 9    ? &ring[i % RING]
                      : kind < 14 ? &medium[draw(MEDIUM)]
                                  : &longer[draw(LONG)];
        if (i % 8 == 0) {
            *slot = realloc(*slot, mixed_size());
        } else if (i % 11 == 0) {
            free(*slot);
            *slot = calloc(1, mixed_size());
        } else {
            replace(slot);
        }
        CHECK(*slot != NULL);
        if (i % 256 == 0) {
            size_t first = (size_t)draw(LONG - 500);
            for (size_t k = first; k < first + 500; k++) {
                free(longer[k]);
                longer[k] = NULL;
            }
        }
        if (i % 50 == 0)
            clock_ms++;
    }
}

static void trace(int unused) {
    (void)unused;
    count(mix, 200 * 1000);
}

/* ---- all scenarios --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(int);
    size_t size;
    int taking;
} SCENARIOS[] = {
    {"malloc-8", cached, 8, 1},
    {"malloc-128", cached, 128, 1},
    {"malloc-1024", cached, 1024, 1},
    {"malloc-4096", cached, 4096, 1},
    {"malloc-32768", cached, 32768, 1},
    {"free-8", cached, 8, 0},
    {"free-128", cached, 128, 0},
    {"free-1024", cached, 1024, 0},
    {"free-4096", cached, 4096, 0},
    {"free-32768", cached, 32768, 0},
    {"new-128", cached_operators, 128, 1},
    {"delete-128", cached_operators, 128, 0},
    {"calloc-128", cached_zeroed, 128, 1},
    {"realloc-in-place", resized, 128, 0},
    {"memalign-128", cached_aligned, 128, 1},
    {"mallocx-128", cached_flagged, 128, 1},
    {"dallocx-128", cached_flagged, 128, 0},
    {"sized-free-128", cached_sized, 128, 0},
    {"sampled-malloc-8", sampled, 8, 1},
    {"sampled-malloc-128", sampled, 128, 1},
    {"sampled-malloc-1024", sampled, 1024, 1},
    {"sampled-malloc-4096", sampled, 4096, 1},
    {"sampled-malloc-32768", sampled, 32768, 1},
    {"sampled-free-128", sampled, 128, 0},
    {"sampled-sized-free-128", sampled_sized, 128, 0},
    {"sampled-new-128", sampled_operators, 128, 1},
    {"sampled-delete-128", sampled_operators, 128, 0},
    {"sample-of-8-frames", each_sampled, 1024, 1},
    {"counted-malloc-128", cached_counting, 128, 1},
    {"counted-free-128", cached_counting, 128, 0},
    {"fill-from-slabs", bulk_small, 64, 1},
    {"flush-to-slabs", bulk_small, 64, 0},
    {"fill-from-store", stored, 64, 1},
    {"flush-to-store", stored, 64, 0},
    {"make-slabs", bulk_slabs, 14336, 1},
    {"unmake-slabs", bulk_slabs, 14336, 0},
    {"kept-malloc-32768", kept, 32768, 1},
    {"kept-free-32768", kept, 32768, 0},
    {"large-malloc", large, 1 << 20, 1},
    {"large-free", large, 1 << 20, 0},
    {"trace", trace, 0, 0},
};

int main(int argc, char **argv) {
    allocate = malloc;
    release = free;
    /* The first call reads options and environment; no count may include that. */
    free(malloc(1));
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) {
        if (argc < 2) {
            puts(SCENARIOS[i].name);
        } else if (strcmp(argv[1], SCENARIOS[i].name) == 0) {
            size = SCENARIOS[i].size;
            SCENARIOS[i].run(SCENARIOS[i].taking);
            printf("operations %llu\n", (unsigned long long)operations);
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
