/* The code that all workloads share: parameters, the clock, random numbers, threads, and the
 * result.
 *
 * A workload is one small program per experiment. It takes `name=value` parameters, works with
 * plain malloc and free on the process's allocator, and prints lines of `name value` for the lab:
 *
 *     seconds 0.123456789       the time of the work alone, on a monotonic clock
 *     operations 20000000       allocations plus frees
 *     malloc /path/to/lib.so    the file that provides `malloc`, according to the loader
 *     free /path/to/lib.so
 *
 * Everything here is `static`, so that each program is one translation unit. It is valid C11 and
 * C++17. The programs are compiled with -fno-builtin, so that no allocation is optimised away. */
#ifndef MALLARD_WORKLOAD_H
#define MALLARD_WORKLOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- parameters ------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    uint64_t value; /* the default before parsing */
    uint64_t min, max;
} Param;

__attribute__((noreturn)) static void fail(const char *what, const char *detail) {
    fprintf(stderr, "workload: %s: %s\n", what, detail);
    exit(2);
}

static void parse_params(int argc, char **argv, Param *params, size_t count) {
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t length = equals ? (size_t)(equals - argv[i]) : 0;
        Param *found = NULL;
        for (size_t k = 0; k < count && equals; k++)
            if (strlen(params[k].name) == length && memcmp(params[k].name, argv[i], length) == 0)
                found = &params[k];
        if (!found) {
            fprintf(stderr, "workload: unknown parameter '%s'; valid:", argv[i]);
            for (size_t k = 0; k < count; k++)
                fprintf(stderr, " %s=%llu", params[k].name, (unsigned long long)params[k].value);
            fputc('\n', stderr);
            exit(2);
        }
        char *end = NULL;
        errno = 0;
        unsigned long long value = strtoull(equals + 1, &end, 10);
        if (errno || end == equals + 1 || *end || equals[1] == '-')
            fail("not a whole number", argv[i]);
        if (value < found->min || value > found->max)
            fail("out of range", argv[i]);
        found->value = value;
    }
}

/* ---- clock and random numbers ---------------------------------------------------------------- */

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* rand() takes a lock in glibc; with a generator per thread, threads share only the allocator.
 * splitmix64 makes the thread's number a seed; xorshift64 takes three shifts per draw. */
static inline uint64_t random_seed(uint64_t thread) {
    uint64_t z = (thread + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) | 1;
}

static inline uint64_t random_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Uniform enough in [low, high]: the high half of a 32 by 32 bit product, no division. */
static inline size_t random_size(uint64_t *state, uint64_t low, uint64_t high) {
    uint64_t draw = random_next(state) >> 32;
    return (size_t)(low + ((draw * (high - low + 1)) >> 32));
}

/* A failed allocation ends the measurement and never becomes a figure. */
static inline void *must(void *block) {
    if (__builtin_expect(block == NULL, 0))
        fail("malloc returned NULL", strerror(errno));
    return block;
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct {
    void (*work)(uint64_t thread);
    uint64_t number;
    pthread_barrier_t *gate; /* NULL: start at once */
} Thread;

static void *thread_main(void *argument) {
    Thread *thread = (Thread *)argument;
    if (thread->gate)
        pthread_barrier_wait(thread->gate);
    thread->work(thread->number);
    return NULL;
}

/* Runs `work` in `threads` threads and returns the seconds it took.
 *
 * By default the clock runs from before the first thread starts until the last has ended, so a
 * thread may end before the last one starts. With `together`, all threads wait at a barrier first,
 * and the clock starts when it opens: all threads' live blocks then coexist. */
static inline double run_threads(uint64_t threads, int together, void (*work)(uint64_t)) {
    /* Mapped, because the bookkeeping must not be part of the measured heap. */
    size_t bytes = (size_t)threads * (sizeof(Thread) + sizeof(pthread_t));
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap", strerror(errno));
    Thread *thread = (Thread *)memory;
    pthread_t *handle = (pthread_t *)(thread + threads);
    pthread_barrier_t gate;
    if (together)
        pthread_barrier_init(&gate, NULL, (unsigned)threads + 1);

    double start = now();
    for (uint64_t i = 0; i < threads; i++) {
        thread[i].work = work;
        thread[i].number = i;
        thread[i].gate = together ? &gate : NULL;
        int error = pthread_create(&handle[i], NULL, thread_main, &thread[i]);
        if (error)
            fail("cannot start a thread", strerror(error));
    }
    if (together) {
        /* Taken before the gate opens: afterwards the workers might run first, unmeasured. */
        start = now();
        pthread_barrier_wait(&gate);
    }
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(handle[i], NULL);
    double seconds = now() - start;

    if (together)
        pthread_barrier_destroy(&gate);
    munmap(memory, bytes);
    return seconds;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void print_provider(const char *symbol) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    if (address && dladdr(address, &info) && info.dli_fname)
        printf("%s %s\n", symbol, info.dli_fname);
    else
        printf("%s ?\n", symbol);
}

static void print_result(double seconds, uint64_t operations) {
    printf("seconds %.9f\n", seconds);
    printf("operations %llu\n", (unsigned long long)operations);
    print_provider("malloc");
    print_provider("free");
    if (fflush(stdout) != 0)
        fail("cannot write the result", strerror(errno));
}

/* The rest of a workload: `threads` threads, each with so many operations. */
static inline int run_plain(uint64_t threads, uint64_t together, void (*work)(uint64_t),
                            uint64_t operations_each) {
    const double seconds = run_threads(threads, together != 0, work);
    print_result(seconds, threads * operations_each);
    return 0;
}

#endif
