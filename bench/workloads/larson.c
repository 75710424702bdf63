/* larson: a server's life, after Larson and Krishnan, "Memory Allocation for Long-Running Server
 * Applications" (ISMM 1998). Every thread owns a table of blocks and repeatedly replaces a random
 * one; then it hands its table to a new thread and ends. So most blocks are freed by another thread
 * than the one that allocated them, and ended threads' caches must be reused.
 *
 *     threads  chains of threads that run at once (2)      slots   blocks live in each table (1000)
 *     rounds   threads in each chain, one after another (250)
 *     count    replacements by each of them (100000)       min, max   uniform sizes (16, 512)
 *
 * The work is threads × rounds × count. A successor joins its predecessor, so that the stacks of
 * ended threads do not count as memory. */
#include "memory.h"

enum { THREADS, ROUNDS, COUNT, SLOTS, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 2, 1, 4096},
    {"rounds", 250, 1, 1000000},
    {"count", 100000, 1, UINT64_C(1) << 40},
    {"slots", 1000, 1, 1 << 24},
    {"min", 16, LEAST_BLOCK, UINT32_MAX - 1},
    {"max", 512, LEAST_BLOCK, UINT32_MAX - 1},
};

typedef struct {
    void **table;
    uint64_t state;
    uint64_t left; /* generations still to come, this one included */
    pthread_t before;
    int has_before;
    int last; /* written once by the last generation, under `ended` */
} Chain;

static pthread_mutex_t ended = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended_changed = PTHREAD_COND_INITIALIZER;

static void *generation(void *argument) {
    Chain *chain = (Chain *)argument;
    if (chain->has_before)
        pthread_join(chain->before, NULL);
    const uint64_t slots = params[SLOTS].value, low = params[MIN].value, high = params[MAX].value;
    uint64_t state = chain->state;
    void **table = chain->table;
    for (uint64_t i = params[COUNT].value; i > 0; i--) {
        void **slot = &table[random_size(&state, 0, slots - 1)];
        drop(*slot);
        *slot = make(random_size(&state, low, high));
    }
    chain->state = state;
    if (--chain->left == 0) {
        pthread_mutex_lock(&ended);
        chain->before = pthread_self();
        chain->last = 1;
        pthread_cond_broadcast(&ended_changed);
        pthread_mutex_unlock(&ended);
        return NULL;
    }
    chain->before = pthread_self();
    chain->has_before = 1;
    pthread_t successor;
    const int error = pthread_create(&successor, NULL, generation, chain);
    if (error)
        fail("cannot start a thread", strerror(error));
    return NULL;
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    const uint64_t threads = params[THREADS].value, slots = params[SLOTS].value;
    const uint64_t low = params[MIN].value, high = params[MAX].value;
    check_range(low, high);
    const size_t bytes = threads * (sizeof(Chain) + slots * sizeof(void *));
    Chain *chains = (Chain *)map_memory(bytes);
    void **tables = (void **)(chains + threads);

    const double start = now();
    for (uint64_t i = 0; i < threads; i++) {
        Chain *chain = &chains[i];
        chain->table = tables + i * slots;
        chain->state = random_seed(i);
        chain->left = params[ROUNDS].value;
        for (uint64_t k = 0; k < slots; k++)
            chain->table[k] = make(random_size(&chain->state, low, high));
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_t first;
        const int error = pthread_create(&first, NULL, generation, &chains[i]);
        if (error)
            fail("cannot start a thread", strerror(error));
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_mutex_lock(&ended);
        while (!chains[i].last)
            pthread_cond_wait(&ended_changed, &ended);
        pthread_mutex_unlock(&ended);
        pthread_join(chains[i].before, NULL);
    }
    double seconds = now() - start;
    note_huge();
    const double resumed = now();
    for (uint64_t i = 0; i < threads * slots; i++)
        drop(tables[i]);
    seconds += now() - resumed;
    note_end();
    unmap_memory(chains, bytes);
    print_all(seconds, 2 * threads * (slots + params[ROUNDS].value * params[COUNT].value));
    return 0;
}
