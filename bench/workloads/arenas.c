/* arenas: every thread allocates blocks of one size and clears each, then frees them all. The heap
 * grows quickly in many threads at once, so the number of arenas matters.
 *
 * The published experiment keeps the pointers on the thread's stack. Here a separate mapping holds
 * them: the count can be a parameter, and the list is not in the measured heap. */
#include "workload.h"

enum { THREADS, COUNT, SIZE, TOGETHER, PARAMS };
static Param params[PARAMS] = {
    {"threads", 16, 1, 4096},
    {"count", 100000, 1, UINT64_C(1) << 40},
    {"size", 256, 1, UINT64_C(1) << 40},
    {"together", 0, 0, 1},
};

/* The compiler would remove a memset to a block that is freed unread. A call through a volatile
 * function pointer stays, and runs at the library's full speed. */
static void *(*volatile clear)(void *, int, size_t) = memset;

static void work(uint64_t thread) {
    (void)thread;
    const uint64_t count = params[COUNT].value;
    const size_t size = params[SIZE].value, bytes = count * sizeof(void *);
    void **list =
        (void **)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED)
        fail("mmap", strerror(errno));
    for (uint64_t i = 0; i < count; i++) {
        list[i] = must(malloc(size));
        clear(list[i], 0, size);
    }
    for (uint64_t i = 0; i < count; i++)
        free(list[i]);
    munmap(list, bytes);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    return run_plain(params[THREADS].value, params[TOGETHER].value, work, params[COUNT].value * 2);
}
