/* many: more threads than processors, each with a table of blocks, of which each step replaces a
 * random one. In one step of eight, the thread exchanges the old block in a common table for
 * another thread's and frees that instead.
 *
 *     threads   (64)    slots   live blocks in each table (400)   common   in the common one (1024)
 *     count     replacements by each thread (150000)   min, max   log-uniform sizes (16, 16384) */
#include "distribution.h"
#include "memory.h"

enum { THREADS, COUNT, SLOTS, COMMON, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 64, 1, 4096},
    {"count", 150000, 1, UINT64_C(1) << 40},
    {"slots", 400, 1, 1 << 20},
    {"common", 1024, 1, 1 << 20},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 16384, LEAST_BLOCK, UINT32_MAX / 2},
};

static void **common, **tables;

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, slots = params[SLOTS].value;
    const uint64_t shared = params[COMMON].value, low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    void **table = tables + thread * slots;
    for (uint64_t i = 0; i < count; i++) {
        void **slot = &table[random_size(&state, 0, slots - 1)];
        void *old = *slot;
        if (old && i % 8 == 0)
            old = __atomic_exchange_n(&common[random_size(&state, 0, shared - 1)], old,
                                      __ATOMIC_ACQ_REL);
        if (old)
            drop(old);
        *slot = make(random_log(&state, low, high));
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
    const double seconds = run_threads(threads, 1, work);
    for (uint64_t i = 0; i < shared; i++)
        if (common[i])
            drop(common[i]);
    note_end();
    unmap_memory(common, bytes);
    print_all(seconds, 2 * threads * params[COUNT].value);
    return 0;
}
