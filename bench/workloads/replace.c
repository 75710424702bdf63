/* replace: a large live set whose blocks are replaced one by one, with sizes and lifetimes from
 * published measurements. The number of live blocks stays the same while the heap fragments.
 *
 *     distribution=1   a fleet of servers (distribution.h). Lifetimes as in the same paper: 46 % of
 *                      the objects below 1 KiB are short-lived; here they end after 64 more such
 *                      objects. All others replace a random one of the live set.
 *     distribution=2   a key-value cache (distribution.h). Items are replaced as often as they are
 *                      requested. In the paper, 1 % of the keys get 55 % of the requests, 10 % get
 *                      90 %, and the rarer half of them 1 %.
 *     distribution=3   16 bytes to 4 KiB, evenly distributed, 2,056 bytes on the mean. The live
 *                      bytes stay about the same, so the heap's size is what the time and the
 *                      resident memory are about.
 *
 *     threads   each with its own live set (1)
 *     live      live objects of all threads together (300000, about 140 MiB)
 *     count     replacements by all threads together (3000000) */
#include "distribution.h"
#include "memory.h"

enum { THREADS, DISTRIBUTION, LIVE, COUNT, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 1024},
    {"distribution", 1, 1, 3},
    {"live", 300000, 1000, 1 << 28},
    {"count", 3000000, 1, UINT64_C(1) << 40},
};

enum { YOUNG = 64 };

static size_t any_size(uint64_t *state) {
    switch (params[DISTRIBUTION].value) {
    case 1:
        return draw(state, FLEET);
    case 2:
        return draw_item(state);
    default:
        return random_size(state, 16, 4096);
    }
}

static void replace(void **slot, size_t size) {
    drop(*slot);
    *slot = make(size);
}

static void replace_fleet(void **table, uint64_t live, uint64_t count, uint64_t *state) {
    void *young[YOUNG] = {NULL};
    uint64_t born = 0;
    for (uint64_t i = 0; i < count; i++) {
        const size_t size = draw(state, FLEET);
        if (size < 1024 && random_size(state, 0, 99) < 46) {
            void **slot = &young[born++ % YOUNG];
            if (*slot)
                drop(*slot);
            *slot = make(size);
        } else {
            replace(&table[random_size(state, 0, live - 1)], size);
        }
    }
    for (unsigned i = 0; i < YOUNG; i++)
        if (young[i])
            drop(young[i]);
}

static void replace_items(void **table, uint64_t live, uint64_t count, uint64_t *state) {
    const uint64_t hot = live / 100, warm = live / 10, half = live / 2;
    for (uint64_t i = 0; i < count; i++) {
        const size_t rank = random_size(state, 0, 99);
        const size_t slot = rank < 55   ? random_size(state, 0, hot - 1)
                            : rank < 90 ? random_size(state, hot, warm - 1)
                            : rank < 99 ? random_size(state, warm, half - 1)
                                        : random_size(state, half, live - 1);
        replace(&table[slot], draw_item(state));
    }
}

static void replace_any(void **table, uint64_t live, uint64_t count, uint64_t *state) {
    for (uint64_t i = 0; i < count; i++)
        replace(&table[random_size(state, 0, live - 1)], any_size(state));
}

static void work(uint64_t thread) {
    const uint64_t threads = params[THREADS].value;
    const uint64_t live = params[LIVE].value / threads, count = params[COUNT].value / threads;
    uint64_t state = random_seed(thread);
    void **table = (void **)map_memory(live * sizeof(void *));
    for (uint64_t i = 0; i < live; i++)
        table[i] = make(any_size(&state));
    if (params[DISTRIBUTION].value == 1)
        replace_fleet(table, live, count, &state);
    else if (params[DISTRIBUTION].value == 2)
        replace_items(table, live, count, &state);
    else
        replace_any(table, live, count, &state);
    if (thread == 0)
        note_huge();
    for (uint64_t i = 0; i < live; i++)
        drop(table[i]);
    unmap_memory(table, live * sizeof(void *));
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    const uint64_t threads = params[THREADS].value;
    if (params[LIVE].value / threads < 100)
        fail("live is too small", "each thread needs at least 100 live objects");
    const double seconds = run_threads(threads, 1, work);
    const uint64_t each = params[LIVE].value / threads + params[COUNT].value / threads;
    print_all(seconds, 2 * threads * each);
    return 0;
}
