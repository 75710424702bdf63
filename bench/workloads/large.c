/* large: buffers far above the small classes, replaced in random order, as in image and database
 * programs. Allocators differ in whether they reuse freed memory and how much of it stays resident.
 * Writing to every page includes the kernel's part.
 *
 *     threads   (1)      slots   buffers live in each thread (16)
 *     count     replacements by each thread (100)
 *     min, max   log-uniform sizes (32768, 67108864) */
#include "distribution.h"
#include "memory.h"

enum { THREADS, COUNT, SLOTS, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 1024},
    {"count", 100, 1, UINT64_C(1) << 40},
    {"slots", 16, 1, 4096},
    {"min", 32768, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 67108864, LEAST_BLOCK, UINT32_MAX / 2},
};

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, slots = params[SLOTS].value;
    const uint64_t low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    void *block[4096] = {NULL};
    for (uint64_t i = 0; i < count; i++) {
        void **slot = &block[random_size(&state, 0, slots - 1)];
        if (*slot)
            drop(*slot);
        *slot = make(random_log(&state, low, high));
    }
    if (thread == 0)
        note_huge();
    for (uint64_t i = 0; i < slots; i++)
        if (block[i])
            drop(block[i]);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    return run_all(params[THREADS].value, work, 2 * params[COUNT].value);
}
