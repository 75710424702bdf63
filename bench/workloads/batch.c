/* batch: every thread fills a list with blocks of random small sizes and then frees them all in the
 * same order. The list itself comes from malloc too, and the blocks are not written to unless
 * `touch=1`: both as in the published experiment. */
#include "workload.h"

enum { THREADS, COUNT, MIN, MAX, TOUCH, TOGETHER, PARAMS };
static Param params[PARAMS] = {
    {"threads", 32, 1, 4096},
    {"count", 500000, 1, UINT64_C(1) << 40},
    {"min", 16, 1, UINT32_MAX - 1},
    {"max", 255, 1, UINT32_MAX - 1},
    {"touch", 0, 0, 1},
    {"together", 0, 0, 1},
};

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, low = params[MIN].value, high = params[MAX].value;
    const uint64_t touch = params[TOUCH].value;
    uint64_t state = random_seed(thread);
    void **list = (void **)must(malloc(count * sizeof(void *)));
    for (uint64_t i = 0; i < count; i++) {
        list[i] = must(malloc(random_size(&state, low, high)));
        if (touch)
            *(volatile char *)list[i] = 'a';
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
