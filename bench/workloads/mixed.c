/* mixed: like `same`, but with sizes from a wide log-uniform range. Each step replaces a random
 * block of the ring, so many classes alternate.
 *
 *     threads   (1)      ring   maximum of live blocks (256)
 *     count     replacements by each thread (16000000)   min, max   log-uniform sizes (8, 32768) */
#include "distribution.h"
#include "memory.h"

enum { THREADS, COUNT, RING, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 4096},
    {"count", 16000000, 1, UINT64_C(1) << 40},
    {"ring", 256, 1, 4096},
    {"min", 8, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 32768, LEAST_BLOCK, UINT32_MAX / 2},
};

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, ring = params[RING].value;
    const uint64_t low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    void *block[4096] = {NULL};
    for (uint64_t i = 0; i < count; i++) {
        void **slot = &block[random_size(&state, 0, ring - 1)];
        if (*slot)
            drop(*slot);
        *slot = make(random_log(&state, low, high));
    }
    for (uint64_t i = 0; i < ring; i++)
        if (block[i])
            drop(block[i]);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    return run_all(params[THREADS].value, work, 2 * params[COUNT].value);
}
