/* sleepers: many threads that work for a moment and then sleep, as connections with a thread each
 * do. In each burst a thread allocates blocks and frees all of them; then all threads sleep until
 * the next one. What stays resident is the threads' stacks and what the allocator keeps for each.
 *
 *     threads   (2000)    bursts   (4)    blocks   of each thread in a burst (200)
 *     min, max  log-uniform sizes (16, 4096)
 *
 * The end state is when all threads sleep after the last burst. */
#include "distribution.h"
#include "memory.h"

enum { THREADS, BURSTS, BLOCKS, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 2000, 1, 30000},
    {"bursts", 4, 1, 1000},
    {"blocks", 200, 1, 1 << 20},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 4096, LEAST_BLOCK, UINT32_MAX / 2},
};

static pthread_barrier_t awake, asleep;
static void **tables;

static void *work(void *argument) {
    const uint64_t thread = (uint64_t)(uintptr_t)argument, blocks = params[BLOCKS].value;
    uint64_t state = random_seed(thread);
    void **table = tables + thread * blocks;
    for (uint64_t burst = 0; burst < params[BURSTS].value; burst++) {
        pthread_barrier_wait(&awake);
        for (uint64_t i = 0; i < blocks; i++)
            table[i] = make(random_log(&state, params[MIN].value, params[MAX].value));
        for (uint64_t i = 0; i < blocks; i++)
            drop(table[i]);
        pthread_barrier_wait(&asleep);
    }
    pthread_barrier_wait(&awake);
    return NULL;
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t threads = params[THREADS].value, blocks = params[BLOCKS].value;
    const size_t bytes = threads * (sizeof(pthread_t) + blocks * sizeof(void *));
    tables = (void **)map_memory(bytes);
    pthread_t *handles = (pthread_t *)(tables + threads * blocks);
    pthread_barrier_init(&awake, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&asleep, NULL, (unsigned)threads + 1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    for (uint64_t i = 0; i < threads; i++) {
        const int error = pthread_create(&handles[i], &small, work, (void *)(uintptr_t)i);
        if (error)
            fail("cannot start a thread", strerror(error));
    }
    const double start = now();
    for (uint64_t burst = 0; burst < params[BURSTS].value; burst++) {
        pthread_barrier_wait(&awake);
        pthread_barrier_wait(&asleep);
    }
    const double seconds = now() - start;
    note_end();
    pthread_barrier_wait(&awake);
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    print_all(seconds, 2 * threads * params[BURSTS].value * blocks);
    return 0;
}
