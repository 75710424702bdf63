/* aligned: posix_memalign with every power of two from 16 bytes to 64 KiB, as for vector
 * instructions, direct I/O and cache lines. Each step replaces a random block of a ring and
 * verifies the alignment.
 *
 *     threads   (1)      ring   maximum of live blocks (256)
 *     count     replacements by each thread (4000000)   min, max   log-uniform sizes (16, 4096)
 *     least, most   the smallest and the largest alignment, powers of two (16, 65536) */
#include "distribution.h"
#include "memory.h"

enum { THREADS, COUNT, RING, MIN, MAX, LEAST, MOST, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 4096},
    {"count", 4000000, 1, UINT64_C(1) << 40},
    {"ring", 256, 1, 4096},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 4096, LEAST_BLOCK, UINT32_MAX / 2},
    {"least", 16, sizeof(void *), 1 << 21},
    {"most", 65536, sizeof(void *), 1 << 21},
};

static void *aligned(size_t alignment, size_t size) {
    void *block = NULL;
    const int error = posix_memalign(&block, alignment, size);
    if (error)
        fail("posix_memalign", strerror(error));
    if ((uintptr_t)block & (alignment - 1))
        fail("posix_memalign returned a misaligned block",
             "its address is not a multiple of the alignment");
    stamp(block, size);
    return block;
}

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, ring = params[RING].value;
    const uint64_t low = params[MIN].value, high = params[MAX].value, least = params[LEAST].value;
    const uint64_t doublings =
        (uint64_t)(__builtin_ctzll(params[MOST].value) - __builtin_ctzll(least));
    uint64_t state = random_seed(thread);
    void *block[4096] = {NULL};
    for (uint64_t i = 0; i < count; i++) {
        void **slot = &block[random_size(&state, 0, ring - 1)];
        if (*slot)
            drop(*slot);
        const size_t alignment = least << random_size(&state, 0, doublings);
        *slot = aligned(alignment, random_log(&state, low, high));
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
    const uint64_t least = params[LEAST].value, most = params[MOST].value;
    if ((least & (least - 1)) || (most & (most - 1)) || least > most)
        fail("least and most are alignments", "give powers of two with least <= most");
    return run_all(params[THREADS].value, work, 2 * params[COUNT].value);
}
