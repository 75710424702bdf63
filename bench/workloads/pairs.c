/* pairs: every thread repeatedly allocates a block, writes its first byte and frees it. Only one
 * block per thread is live, so only the fast paths of malloc and free are measured. */
#include "workload.h"

enum { THREADS, COUNT, SIZE, TOGETHER, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 4096},
    {"count", 10000000, 1, UINT64_MAX / 8192},
    {"size", 128, 1, UINT64_C(1) << 40},
    {"together", 0, 0, 1},
};

static void work(uint64_t thread) {
    (void)thread;
    const uint64_t count = params[COUNT].value;
    const size_t size = params[SIZE].value;
    for (uint64_t i = 0; i < count; i++) {
        volatile char *block = (volatile char *)must(malloc(size));
        block[0] = 'a';
        free((void *)block);
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    return run_plain(params[THREADS].value, params[TOGETHER].value, work, params[COUNT].value * 2);
}
