/* same: repeatedly allocates and then frees a small ring of blocks of one size: the fast paths of
 * one class, with a working set in the processor's cache. Rings are freed alternately in the order
 * of allocation and in reverse, so that neither a stack nor a queue of free blocks has an
 * advantage.
 *
 *     threads   (1)      size   (64)      ring   maximum of live blocks (64)
 *     count     rings allocated and freed by each thread (1000000) */
#include "memory.h"

enum { THREADS, COUNT, SIZE, RING, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 4096},
    {"count", 1000000, 1, UINT64_C(1) << 40},
    {"size", 64, LEAST_BLOCK, UINT64_C(1) << 40},
    {"ring", 64, 1, 4096},
};

static void work(uint64_t thread) {
    (void)thread;
    const uint64_t count = params[COUNT].value, ring = params[RING].value;
    const size_t size = params[SIZE].value;
    void *block[4096];
    for (uint64_t round = 0; round < count; round++) {
        for (uint64_t i = 0; i < ring; i++)
            block[i] = make(size);
        if (round & 1)
            for (uint64_t i = ring; i > 0; i--)
                drop(block[i - 1]);
        else
            for (uint64_t i = 0; i < ring; i++)
                drop(block[i]);
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    return run_all(params[THREADS].value, work, 2 * params[COUNT].value * params[RING].value);
}
