/* threads: short-lived threads, as in a server that starts one per request. A few run at a time.
 * Each allocates some hundred blocks of mixed sizes, frees most of them in another order and leaves
 * the rest to the main thread, which frees them after joining the thread. The cost is that of a
 * thread's first allocation and its end.
 *
 *     count     threads in total (8000)            at_once    of them at a time (4)
 *     blocks    allocated by each (300)            leave      percent left to the main thread (10)
 *     min, max  log-uniform sizes (16, 2048) */
#include "distribution.h"
#include "memory.h"

enum { COUNT, AT_ONCE, BLOCKS, LEAVE, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"count", 8000, 1, UINT64_C(1) << 40},
    {"at_once", 4, 1, 256},
    {"blocks", 300, 1, 1 << 20},
    {"leave", 10, 0, 100},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 2048, LEAST_BLOCK, UINT32_MAX / 2},
};

typedef struct {
    void **table;
    uint64_t state;
    pthread_t handle;
} Worker;

static void *work_once(void *argument) {
    Worker *worker = (Worker *)argument;
    const uint64_t blocks = params[BLOCKS].value, low = params[MIN].value, high = params[MAX].value;
    const uint64_t left = blocks * params[LEAVE].value / 100;
    void **table = worker->table;
    for (uint64_t i = 0; i < blocks; i++)
        table[i] = make(random_log(&worker->state, low, high));
    for (uint64_t live = blocks; live > left; live--) {
        const uint64_t at = random_size(&worker->state, 0, live - 1);
        drop(table[at]);
        table[at] = table[live - 1];
    }
    return NULL;
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t count = params[COUNT].value, at_once = params[AT_ONCE].value;
    const uint64_t blocks = params[BLOCKS].value, left = blocks * params[LEAVE].value / 100;
    const size_t bytes = at_once * (sizeof(Worker) + blocks * sizeof(void *));
    Worker *workers = (Worker *)map_memory(bytes);
    for (uint64_t i = 0; i < at_once; i++) {
        workers[i].table = (void **)(workers + at_once) + i * blocks;
        workers[i].state = random_seed(i);
    }
    const double start = now();
    for (uint64_t begun = 0; begun < count;) {
        const uint64_t together = count - begun < at_once ? count - begun : at_once;
        for (uint64_t i = 0; i < together; i++) {
            const int error = pthread_create(&workers[i].handle, NULL, work_once, &workers[i]);
            if (error)
                fail("cannot start a thread", strerror(error));
        }
        for (uint64_t i = 0; i < together; i++) {
            pthread_join(workers[i].handle, NULL);
            for (uint64_t k = 0; k < left; k++)
                drop(workers[i].table[k]);
        }
        begun += together;
    }
    const double seconds = now() - start;
    unmap_memory(workers, bytes);
    print_all(seconds, 2 * count * blocks);
    return 0;
}
