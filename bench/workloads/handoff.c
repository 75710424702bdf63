/* handoff: some threads allocate and others free, the pattern of Lever and Boreham's "malloc()
 * Performance in a Multithreaded Linux Environment" (USENIX 2000), known from xmalloc-test.
 * Producers fill batches of blocks and queue them; consumers take batches and free their blocks.
 * With more than two stages there are single threads in between. Each takes a batch, allocates a
 * new block of another size for each block, frees the old ones and passes the batch on, so every
 * thread frees the blocks of the one before it.
 *
 *     producers, consumers   threads at the ends (1, 1)    stages   length of the pipeline (2)
 *     count   batches in total, for any number of threads (150000)   batch   blocks in each (100)
 *     depth   capacity of a queue in batches (64)          min, max   uniform sizes (16, 512)
 *
 * A batch also comes from malloc, as a message would. The queues are mapped. */
#include "memory.h"

enum { PRODUCERS, CONSUMERS, STAGES, COUNT, BATCH, DEPTH, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"producers", 1, 1, 1024},
    {"consumers", 1, 1, 1024},
    {"stages", 2, 2, 64},
    {"count", 150000, 1, UINT64_C(1) << 40},
    {"batch", 100, 1, 1 << 20},
    {"depth", 64, 1, 1 << 16},
    {"min", 16, LEAST_BLOCK, UINT32_MAX - 1},
    {"max", 512, LEAST_BLOCK, UINT32_MAX - 1},
};

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    uint64_t head, length;
    uint64_t writers; /* threads that may still put */
    void ***slot;
} Queue;

static Queue *queues; /* stages - 1 of them */

static void queue_put(Queue *queue, void **batch) {
    const uint64_t depth = params[DEPTH].value;
    pthread_mutex_lock(&queue->lock);
    while (queue->length == depth)
        pthread_cond_wait(&queue->emptied, &queue->lock);
    queue->slot[(queue->head + queue->length++) % depth] = batch;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

/* Returns NULL once the last writer has left and the queue is empty. */
static void **queue_take(Queue *queue) {
    void **batch = NULL;
    pthread_mutex_lock(&queue->lock);
    while (queue->length == 0 && queue->writers)
        pthread_cond_wait(&queue->filled, &queue->lock);
    if (queue->length) {
        batch = queue->slot[queue->head];
        queue->head = (queue->head + 1) % params[DEPTH].value;
        queue->length--;
        pthread_cond_signal(&queue->emptied);
    }
    pthread_mutex_unlock(&queue->lock);
    return batch;
}

static void queue_leave(Queue *queue) {
    pthread_mutex_lock(&queue->lock);
    if (--queue->writers == 0)
        pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

static void produce(uint64_t number, uint64_t *state) {
    const uint64_t producers = params[PRODUCERS].value, size = params[BATCH].value;
    const uint64_t low = params[MIN].value, high = params[MAX].value;
    uint64_t left = params[COUNT].value / producers + (number < params[COUNT].value % producers);
    for (; left > 0; left--) {
        void **batch = (void **)must(malloc(size * sizeof(void *)));
        for (uint64_t i = 0; i < size; i++)
            batch[i] = make(random_size(state, low, high));
        queue_put(&queues[0], batch);
    }
    queue_leave(&queues[0]);
}

static void pass(Queue *from, Queue *to, uint64_t *state) {
    const uint64_t size = params[BATCH].value, low = params[MIN].value, high = params[MAX].value;
    void **batch;
    while ((batch = queue_take(from))) {
        for (uint64_t i = 0; i < size; i++) {
            void *answer = make(random_size(state, low, high));
            drop(batch[i]);
            batch[i] = answer;
        }
        queue_put(to, batch);
    }
    queue_leave(to);
}

static void consume(Queue *queue) {
    const uint64_t size = params[BATCH].value;
    void **batch;
    while ((batch = queue_take(queue))) {
        for (uint64_t i = 0; i < size; i++)
            drop(batch[i]);
        free(batch);
    }
}

/* The thread numbers are in this order: producers, stages in between, consumers. */
static void work(uint64_t thread) {
    const uint64_t producers = params[PRODUCERS].value, between = params[STAGES].value - 2;
    uint64_t state = random_seed(thread);
    if (thread < producers)
        produce(thread, &state);
    else if (thread < producers + between)
        pass(&queues[thread - producers], &queues[thread - producers + 1], &state);
    else
        consume(&queues[between]);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t count = params[STAGES].value - 1, depth = params[DEPTH].value;
    const size_t bytes = count * (sizeof(Queue) + depth * sizeof(void **));
    queues = (Queue *)map_memory(bytes);
    for (uint64_t i = 0; i < count; i++) {
        Queue *queue = &queues[i];
        pthread_mutex_init(&queue->lock, NULL);
        pthread_cond_init(&queue->filled, NULL);
        pthread_cond_init(&queue->emptied, NULL);
        queue->writers = i == 0 ? params[PRODUCERS].value : 1;
        queue->slot = (void ***)(queues + count) + i * depth;
    }
    const uint64_t threads =
        params[PRODUCERS].value + params[STAGES].value - 2 + params[CONSUMERS].value;
    const double seconds = run_threads(threads, 1, work);
    note_end();
    unmap_memory(queues, bytes);
    print_all(seconds, 2 * params[COUNT].value * (params[BATCH].value * count + 1));
    return 0;
}
