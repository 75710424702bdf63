/* sharing: false sharing of cache lines, after Berger et al., "Hoard: A Scalable Memory Allocator
 * for Multithreaded Applications" (ASPLOS 2000). Each thread repeatedly allocates a small block,
 * writes to it many times and frees it. If blocks of two threads share a line, it moves between
 * their processors at each write, and the program is many times slower.
 *
 *     mode=1   passive: the main thread allocates the first block of each thread, side by side,
 *              and every thread frees its own. An allocator that returns it to the same thread
 *              keeps the line shared. Each round has new threads and new blocks.
 *     mode=2   active: the threads allocate all blocks, so only the allocator causes sharing.
 *
 *     threads  (2)      rounds  (40)      count   blocks of each thread in a round (3000)
 *     size     of the blocks (16)         writes  to each of them (1000)
 *
 * The memory after the stamp starts uninitialised and is only incremented. With one processor, or a
 * shared first-level cache, no line moves and the figure means little. */
#include "memory.h"

enum { MODE, THREADS, ROUNDS, COUNT, SIZE, WRITES, PARAMS };
static Param params[PARAMS] = {
    {"mode", 1, 1, 2},
    {"threads", 2, 1, 1024},
    {"rounds", 40, 1, 1000000},
    {"count", 3000, 1, UINT64_C(1) << 40},
    {"size", 16, LEAST_BLOCK + 1, 1 << 20},
    {"writes", 1000, 1, UINT64_C(1) << 32},
};

static void *first[1024];

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, writes = params[WRITES].value;
    const size_t size = params[SIZE].value;
    if (first[thread])
        drop(first[thread]);
    for (uint64_t i = 0; i < count; i++) {
        volatile char *block = (volatile char *)make(size);
        /* Cycles over the bytes after the stamp. Each is computed from one written some steps ago,
         * because the latest one would come from the processor's own store buffer. */
        size_t to = LEAST_BLOCK, from = LEAST_BLOCK + 3 % (size - LEAST_BLOCK);
        for (uint64_t k = 0; k < writes; k++) {
            block[to] = (char)(block[from] + 1);
            if (++to == size)
                to = LEAST_BLOCK;
            if (++from == size)
                from = LEAST_BLOCK;
        }
        drop((void *)block);
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    const uint64_t threads = params[THREADS].value, rounds = params[ROUNDS].value;
    const uint64_t passive = params[MODE].value == 1;
    double seconds = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < threads && passive; i++)
            first[i] = make(params[SIZE].value);
        seconds += run_threads(threads, 1, work);
    }
    print_all(seconds, 2 * rounds * threads * (params[COUNT].value + passive));
    return 0;
}
