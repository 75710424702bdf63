/* latency: how long single calls take. Threads replace random blocks of a table. In one step of
 * four, the thread exchanges its block in a common table for another thread's and frees that
 * instead. Every malloc and free is timed individually; percentiles are over both.
 *
 *     threads   (2)     slots   live blocks in each table (500)   common   in the common one (1024)
 *     count     replacements by each thread (600000)   min, max   log-uniform sizes (16, 262144)
 *
 * `seconds` includes reading the clock and means little: the row's figures are the latencies.
 * latency.h says what slow_calls leaves out. Writing to the blocks is not timed, since a first
 * touch takes the kernel's time. */
#include "distribution.h"
#include "latency.h"

enum { THREADS, COUNT, SLOTS, COMMON, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 2, 1, 256},
    {"count", 600000, 1, UINT64_C(1) << 40},
    {"slots", 500, 1, 1 << 20},
    {"common", 1024, 1, 1 << 20},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 262144, LEAST_BLOCK, UINT32_MAX / 2},
};

/* The thread's counters are refreshed before a call of at least this size, and regularly after this
 * many calls. */
enum { LOOK_SIZE = 16384, LOOK_CALLS = 32 };

static void **common, **tables;
static Latency *latencies;

static void timed_free(Latency *latency, void *block) {
    check(block);
    const uint64_t from = ticks_before();
    free(block);
    latency_add(latency, ticks_after() - from);
}

static void *timed_make(Latency *latency, size_t size) {
    if (size >= LOOK_SIZE)
        latency_refresh(latency);
    const uint64_t from = ticks_before();
    void *block = malloc(size);
    latency_add(latency, ticks_after() - from);
    stamp(must(block), size);
    return block;
}

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, slots = params[SLOTS].value;
    const uint64_t shared = params[COMMON].value, low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    void **table = tables + thread * slots;
    Latency *latency = &latencies[thread];
    for (uint64_t i = 0; i < count; i++) {
        void **slot = &table[random_size(&state, 0, slots - 1)];
        void *old = *slot;
        if (i % LOOK_CALLS == 0)
            latency_refresh(latency);
        if (old && i % 4 == 0)
            old = __atomic_exchange_n(&common[random_size(&state, 0, shared - 1)], old,
                                      __ATOMIC_ACQ_REL);
        if (old)
            timed_free(latency, old);
        *slot = timed_make(latency, random_log(&state, low, high));
    }
    if (thread == 0)
        note_huge();
    for (uint64_t i = 0; i < slots; i++)
        if (table[i])
            drop(table[i]);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t threads = params[THREADS].value, shared = params[COMMON].value;
    const size_t bytes = (threads * params[SLOTS].value + shared) * sizeof(void *);
    common = (void **)map_memory(bytes);
    tables = common + shared;
    latencies = (Latency *)map_memory(threads * sizeof(Latency));
    const double per_ns = ticks_per_ns();
    for (uint64_t i = 0; i < threads; i++)
        latencies[i].slow_ticks = (uint64_t)(200e3 * per_ns);

    const double seconds = run_threads(threads, 1, work);
    for (uint64_t i = 0; i < shared; i++)
        if (common[i])
            drop(common[i]);
    note_end();
    for (uint64_t i = 1; i < threads; i++)
        latency_merge(&latencies[0], &latencies[i]);
    latency_print(&latencies[0], per_ns);
    unmap_memory(latencies, threads * sizeof(Latency));
    unmap_memory(common, bytes);
    print_all(seconds, 2 * threads * params[COUNT].value);
    return 0;
}
