/* calloc: zeroed blocks in a ring, of which each step replaces a random one. Every block is
 * verified to be zero and then written in the same places, so that reused memory must be cleared.
 * Small blocks show the cost of clearing itself; large ones (min=65536 max=4194304 count=6000
 * ring=16) show whether an allocator knows which memory the kernel has already cleared.
 *
 *     threads   (1)      ring   maximum of live blocks (256)
 *     count     replacements by each thread (9000000)   min, max   log-uniform sizes (16, 1024)
 *
 * In blocks up to 1 KiB every word is verified and written, above that one word per 512 bytes. */
#include "distribution.h"
#include "memory.h"

enum { THREADS, COUNT, RING, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 4096},
    {"count", 9000000, 1, UINT64_C(1) << 40},
    {"ring", 256, 1, 4096},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 1024, LEAST_BLOCK, UINT32_MAX / 2},
};

static void *zeroed(size_t size) {
    uint64_t *words = (uint64_t *)must(calloc(1, size));
    const size_t step = size <= 1024 ? 1 : 64, count = size / sizeof(uint64_t);
    uint64_t found = 0;
    for (size_t i = 0; i < count; i += step) {
        found |= words[i];
        words[i] = ~UINT64_C(0);
    }
    if (found)
        fail("calloc returned memory that is not zero", "one of its words has an old value");
    stamp(words, sizeof(uint64_t));
    return words;
}

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, ring = params[RING].value;
    const uint64_t low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    void *block[4096] = {NULL};
    for (uint64_t i = 0; i < count; i++) {
        void **slot = &block[random_size(&state, 0, ring - 1)];
        if (*slot)
            drop(*slot);
        *slot = zeroed(random_log(&state, low, high));
    }
    if (thread == 0)
        note_huge();
    for (uint64_t i = 0; i < ring; i++)
        if (block[i])
            drop(block[i]);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    return run_all(params[THREADS].value, work, 2 * params[COUNT].value);
}
