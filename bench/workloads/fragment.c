/* fragment: blocks of mixed sizes fill the heap, all but every n-th are freed, and blocks of other
 * sizes must fit in between. The next round swaps the sizes. An allocator that cannot use the gaps
 * grows in every round.
 *
 *     total     live MiB at a phase's peak (160)         keep      one in so many is kept (10)
 *     rounds    (3)                                      threads   that share the total (1)
 *
 * Sizes are uniform, 16 to 512 bytes in even phases and 400 to 3000 in odd ones. The blocks that a
 * phase kept are freed at the peak of the next one. In the end state, the blocks that the last
 * phase kept are live, which is also printed as `live_bytes`; they are freed off the clock. */
#include "memory.h"

enum { TOTAL, KEEP, ROUNDS, THREADS, PARAMS };
static Param params[PARAMS] = {
    {"total", 160, 1, 1 << 20},
    {"keep", 10, 2, 1000},
    {"rounds", 3, 1, 1000000},
    {"threads", 1, 1, 64},
};

typedef struct {
    void **block;
    uint64_t count;
} Kept;

static const uint64_t LOW[2] = {16, 400}, HIGH[2] = {512, 3000};
static Kept kept[64];
static void **tables[64];
static uint64_t operations, live_bytes;

static size_t room(void) { /* a table's length: enough if every block had the smallest size */
    return params[TOTAL].value * (UINT64_C(1) << 20) / params[THREADS].value / LOW[0] + 1;
}

static void drop_kept(Kept *list) {
    while (list->count > 0)
        drop(list->block[--list->count]);
}

static void work(uint64_t thread) {
    const uint64_t bytes = params[TOTAL].value * (UINT64_C(1) << 20) / params[THREADS].value;
    const uint64_t phases = params[ROUNDS].value * 2, keep = params[KEEP].value;
    uint64_t state = random_seed(thread), made = 0;
    void **table = tables[thread];
    Kept *old = &kept[thread];
    for (uint64_t phase = 0; phase < phases; phase++) {
        const uint64_t low = LOW[phase & 1], high = HIGH[phase & 1];
        uint64_t count = 0, live = 0, held = 0;
        while (live < bytes) {
            const size_t size = random_size(&state, low, high);
            table[count++] = make(size);
            live += size;
            held += (count - 1) % keep ? 0 : size;
        }
        made += count;
        drop_kept(old);
        if (thread == 0 && phase + 1 == phases)
            note_huge();
        for (uint64_t i = 0; i < count; i++)
            if (i % keep)
                drop(table[i]);
            else
                old->block[old->count++] = table[i];
        if (phase + 1 == phases)
            __atomic_fetch_add(&live_bytes, held, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&operations, 2 * made - old->count, __ATOMIC_RELAXED);
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    const uint64_t threads = params[THREADS].value;
    const size_t pointers = room() * sizeof(void *);
    for (uint64_t i = 0; i < threads; i++) {
        tables[i] = (void **)map_memory(pointers);
        kept[i].block = (void **)map_memory(pointers);
    }
    const double seconds = run_threads(threads, 1, work);
    note_end();
    for (uint64_t i = 0; i < threads; i++) {
        drop_kept(&kept[i]);
        unmap_memory(tables[i], pointers);
        unmap_memory(kept[i].block, pointers);
    }
    printf("live_bytes %llu\n", (unsigned long long)live_bytes);
    print_all(seconds, operations);
    return 0;
}
