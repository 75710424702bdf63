/* Times single calls with a clock of a few nanoseconds and a histogram, and distinguishes slow
 * calls from interruptions.
 *
 * Time comes from the processor's time-stamp counter, calibrated against CLOCK_MONOTONIC at the
 * start, or on other processors from that clock itself. Reading it twice takes some 10 to 20 ns,
 * which is part of all figures of all allocators.
 *
 * The histogram is log-linear with 64 equal steps per octave, so percentiles are accurate to 1.6 %.
 * Each thread has a mapped one, and they are merged at the end.
 *
 * A call above 200 µs is `slow` only if getrusage(RUSAGE_THREAD) shows no page fault and no context
 * switch since the counters were last refreshed, which callers do shortly before calls that may be
 * slow. Time that a hypervisor takes away is invisible from inside and counts as slow. */
#ifndef MALLARD_LATENCY_H
#define MALLARD_LATENCY_H

#include "memory.h"

#include <sys/resource.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* The fences keep the timed call from overlapping with the code around it. */
static inline uint64_t ticks_before(void) {
#if defined(__x86_64__)
    _mm_lfence();
    return __rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
#endif
}

static inline uint64_t ticks_after(void) {
#if defined(__x86_64__)
    unsigned processor;
    const uint64_t ticks = __rdtscp(&processor);
    _mm_lfence();
    return ticks;
#else
    return ticks_before();
#endif
}

enum { STEP_BITS = 6, STEPS = 1 << STEP_BITS, CELLS = (64 - STEP_BITS + 1) * STEPS };

typedef struct {
    uint64_t cell[CELLS];
    uint64_t count, most, slow;
    uint64_t slow_ticks; /* the threshold for a closer look */
    uint64_t excuses;    /* faults and context switches at the last refresh */
} Latency;

static inline size_t cell_of(uint64_t ticks) {
    if (ticks < STEPS)
        return (size_t)ticks;
    const unsigned shift = 63 - (unsigned)__builtin_clzll(ticks) - STEP_BITS;
    return (size_t)(shift + 1) * STEPS + (size_t)((ticks >> shift) - STEPS);
}

/* The middle of a cell, in ticks. */
static inline double cell_ticks(size_t cell) {
    if (cell < STEPS)
        return (double)cell;
    const unsigned shift = (unsigned)(cell / STEPS) - 1;
    return ((double)(STEPS + cell % STEPS) + 0.5) * (double)(UINT64_C(1) << shift);
}

static inline uint64_t excuses_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)(usage.ru_minflt + usage.ru_majflt + usage.ru_nvcsw + usage.ru_nivcsw);
}

static inline void latency_refresh(Latency *latency) { latency->excuses = excuses_now(); }

static inline void latency_add(Latency *latency, uint64_t ticks) {
    latency->cell[cell_of(ticks)]++;
    latency->count++;
    if (ticks > latency->most)
        latency->most = ticks;
    if (__builtin_expect(ticks > latency->slow_ticks, 0)) {
        const uint64_t excuses = excuses_now();
        latency->slow += excuses == latency->excuses;
        latency->excuses = excuses;
    }
}

static inline void latency_merge(Latency *into, const Latency *from) {
    for (size_t i = 0; i < CELLS; i++)
        into->cell[i] += from->cell[i];
    into->count += from->count;
    into->slow += from->slow;
    if (from->most > into->most)
        into->most = from->most;
}

/* The value in ticks that `thousandth` of a thousand calls do not exceed. */
static inline double latency_percentile(const Latency *latency, uint64_t thousandth) {
    const uint64_t wanted = (latency->count * thousandth + 999) / 1000;
    uint64_t seen = 0;
    for (size_t i = 0; i < CELLS; i++) {
        seen += latency->cell[i];
        if (seen >= wanted && seen > 0)
            return cell_ticks(i);
    }
    return 0;
}

/* The number of ticks per nanosecond, measured over 20 ms, which gives four digits. */
static inline double ticks_per_ns(void) {
    const double start = now();
    const uint64_t from = ticks_before();
    double end;
    do
        end = now();
    while (end - start < 0.02);
    return (double)(ticks_after() - from) / ((end - start) * 1e9);
}

static inline void latency_print(const Latency *latency, double per_ns) {
    printf("p50_ns %.1f\n", latency_percentile(latency, 500) / per_ns);
    printf("p99_ns %.1f\n", latency_percentile(latency, 990) / per_ns);
    printf("p999_ns %.1f\n", latency_percentile(latency, 999) / per_ns);
    printf("max_ns %.1f\n", (double)latency->most / per_ns);
    printf("slow_calls %llu\n", (unsigned long long)latency->slow);
}

#endif
