/* burst: a heap that grows and shrinks in waves, like a server between rush hours or a compiler
 * between functions. In each round a thread fills its table with blocks, then frees them in random
 * order until only a share is left, on top of which the next wave grows.
 *
 *     threads   (1)                              rounds   waves (30)
 *     blocks    at the top of a wave, in each thread (200000, about 50 MiB)
 *     keep      percent left between the waves (10)   min, max   log-uniform sizes (16, 1024) */
#include "distribution.h"
#include "memory.h"

enum { THREADS, ROUNDS, BLOCKS, KEEP, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 1024},
    {"rounds", 30, 1, 1000000},
    {"blocks", 200000, 1, 1 << 28},
    {"keep", 10, 0, 99},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 1024, LEAST_BLOCK, UINT32_MAX / 2},
};

static void work(uint64_t thread) {
    const uint64_t blocks = params[BLOCKS].value, low = params[MIN].value, high = params[MAX].value;
    const uint64_t keep = blocks * params[KEEP].value / 100, rounds = params[ROUNDS].value;
    uint64_t state = random_seed(thread), live = 0;
    void **table = (void **)map_memory(blocks * sizeof(void *));
    for (uint64_t round = 0; round < rounds; round++) {
        while (live < blocks)
            table[live++] = make(random_log(&state, low, high));
        if (thread == 0 && round + 1 == rounds)
            note_huge();
        while (live > keep) {
            const uint64_t at = random_size(&state, 0, live - 1);
            drop(table[at]);
            table[at] = table[--live];
        }
    }
    while (live > 0)
        drop(table[--live]);
    unmap_memory(table, blocks * sizeof(void *));
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t threads = params[THREADS].value, blocks = params[BLOCKS].value;
    const double seconds = run_threads(threads, 1, work);
    const uint64_t keep = blocks * params[KEEP].value / 100;
    print_all(seconds, 2 * threads * (keep + params[ROUNDS].value * (blocks - keep)));
    return 0;
}
