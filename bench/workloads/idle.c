/* idle: a peak, then nothing. Threads allocate blocks of mixed sizes, free all but a random share
 * and sleep. The main thread samples the resident memory ten times a second and prints it as the
 * row's curve. An allocator must return memory without being called.
 *
 *     threads   (4)                                total   MiB at the peak, in all threads (400)
 *     keep      percent of the blocks kept (10)    seconds   of sleep and sampling (6)
 *     min, max  log-uniform sizes (16, 65536)
 *
 * `seconds` in the result is the time to the peak and down again. The first point of the curve, at
 * 0, is when the last thread goes to sleep; the last point is the end state. The blocks kept are
 * printed as `live_bytes` and freed at the end. */
#include "distribution.h"
#include "memory.h"

enum { THREADS, TOTAL, KEEP, SECONDS, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 4, 1, 256},
    {"total", 400, 1, 1 << 20},
    {"keep", 10, 0, 99},
    {"seconds", 6, 1, 3600},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 65536, LEAST_BLOCK, UINT32_MAX / 2},
};

static pthread_barrier_t begin, peak, seen, asleep, awake;
static uint64_t live_bytes, blocks;

/* Sizes are stored beside the blocks, to compute the live bytes. */
typedef struct {
    void *block;
    size_t size;
} Entry;

static void *work(void *argument) {
    const uint64_t thread = (uint64_t)(uintptr_t)argument, low = params[MIN].value,
                   high = params[MAX].value;
    const uint64_t share = params[TOTAL].value * (UINT64_C(1) << 20) / params[THREADS].value;
    uint64_t state = random_seed(thread), count = 0, kept = 0, bytes = 0;
    const size_t table_bytes = (share / low + 1) * sizeof(Entry);
    Entry *table = (Entry *)map_memory(table_bytes);
    pthread_barrier_wait(&begin);
    while (bytes < share) {
        const size_t size = random_log(&state, low, high);
        table[count].block = make(size);
        table[count++].size = size;
        bytes += size;
    }
    pthread_barrier_wait(&peak);
    pthread_barrier_wait(&seen);
    for (uint64_t i = 0; i < count; i++)
        if (random_size(&state, 0, 99) < params[KEEP].value) {
            table[kept++] = table[i];
        } else {
            drop(table[i].block);
            bytes -= table[i].size;
        }
    __atomic_fetch_add(&live_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&blocks, count, __ATOMIC_RELAXED);
    pthread_barrier_wait(&asleep);
    pthread_barrier_wait(&awake);
    while (kept > 0)
        drop(table[--kept].block);
    unmap_memory(table, table_bytes);
    return NULL;
}

static void sleep_until(double moment) {
    const double left = moment - now();
    if (left <= 0)
        return;
    struct timespec time = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t threads = params[THREADS].value, points = params[SECONDS].value * 10 + 1;
    pthread_barrier_t *barriers[] = {&begin, &peak, &seen, &asleep, &awake};
    for (size_t i = 0; i < sizeof barriers / sizeof *barriers; i++)
        pthread_barrier_init(barriers[i], NULL, (unsigned)threads + 1);
    typedef struct {
        double at;
        uint64_t rss;
    } Point;
    Point *curve = (Point *)map_memory(points * sizeof(Point));
    pthread_t handles[256];
    for (uint64_t i = 0; i < threads; i++) {
        const int error = pthread_create(&handles[i], NULL, work, (void *)(uintptr_t)i);
        if (error)
            fail("cannot start a thread", strerror(error));
    }

    double start = now();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&peak);
    double seconds = now() - start;
    const uint64_t peak_rss = rss_bytes();
    note_huge();
    start = now();
    pthread_barrier_wait(&seen);
    pthread_barrier_wait(&asleep);
    const double slept = now();
    seconds += slept - start;

    for (uint64_t i = 0; i < points; i++) {
        sleep_until(slept + (double)i / 10);
        curve[i].at = now() - slept;
        curve[i].rss = rss_bytes();
    }
    note_end();
    end_rss = curve[points - 1].rss;
    pthread_barrier_wait(&awake);
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);

    for (uint64_t i = 0; i < points; i++)
        printf("curve %.3f %llu\n", curve[i].at, (unsigned long long)curve[i].rss);
    printf("live_bytes %llu\n", (unsigned long long)live_bytes);
    printf("peak_rss_bytes %llu\n", (unsigned long long)peak_rss);
    unmap_memory(curve, points * sizeof(Point));
    print_all(seconds, 2 * blocks);
    return 0;
}
