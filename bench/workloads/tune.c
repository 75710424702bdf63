/* tune: every thread allocates blocks of random sizes up to a page, fills each, then frees them
 * all. Used to compare the options (arenas, decay, background thread). */
#include "workload.h"

enum { THREADS, COUNT, MIN, MAX, TOGETHER, PARAMS };
static Param params[PARAMS] = {
    {"threads", 16, 1, 4096},       {"count", 50000, 1, UINT64_C(1) << 40},
    {"min", 16, 1, UINT32_MAX - 1}, {"max", 4096, 1, UINT32_MAX - 1},
    {"together", 0, 0, 1},
};

/* Keeps the compiler from removing an unread fill; see arenas.c. */
static void *(*volatile fill)(void *, int, size_t) = memset;

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    void **list = (void **)must(malloc(count * sizeof(void *)));
    for (uint64_t i = 0; i < count; i++) {
        size_t size = random_size(&state, low, high);
        list[i] = must(malloc(size));
        fill(list[i], 0xAB, size);
    }
    for (uint64_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    if (params[MIN].value > params[MAX].value)
        fail("min is larger than max", "give min=N max=M with N <= M");
    return run_plain(params[THREADS].value, params[TOGETHER].value, work,
                     (params[COUNT].value + 1) * 2);
}
