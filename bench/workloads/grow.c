/* grow: buffers that grow by realloc.
 *
 *     mode=1   vectors: many at once. Each step doubles a random one. At its own limit,
 *              log-uniform up to `limit`, it is freed and starts again at 16 bytes. So most steps
 *              are between small classes, and a few move large blocks.
 *     mode=2   huge: one buffer, doubled from 1 MiB to `last`. In the first eighth of what each
 *              step adds, a byte in each page is written, and the rest is left alone: of a
 * gigabyte, 128 MiB are resident at the end unless the allocator copies, which fills it.
 *
 *     count     mode 1: steps of each thread (2000000)     rounds   mode 2: buffers grown (8)
 *     vectors   mode 1: alive at a time (1000)             limit    mode 1: bytes (262144)
 *     threads   each with its own vectors or buffer (1)      last     mode 2: MiB (1024)
 *
 * After each step the contents are verified at both ends of the old part. */
#include "distribution.h"
#include "memory.h"

enum { MODE, THREADS, COUNT, VECTORS, LIMIT, ROUNDS, LAST, PARAMS };
static Param params[PARAMS] = {
    {"mode", 1, 1, 2},
    {"threads", 1, 1, 1024},
    {"count", 2000000, 1, UINT64_C(1) << 40},
    {"vectors", 1000, 1, 1 << 24},
    {"limit", 262144, 32, 1 << 30},
    {"rounds", 8, 1, 1000000},
    {"last", 1024, 1, 1 << 20},
};

typedef struct {
    uint64_t *words;
    size_t size, limit; /* in bytes */
} Vector;

static const size_t LEAST = 16, HUGE_FIRST = 1 << 20;

static void write_ends(uint64_t *words, size_t size) {
    ((volatile uint64_t *)words)[0] = size;
    ((volatile uint64_t *)words)[size / 8 - 1] = ~size;
}

static uint64_t *grown(uint64_t *words, size_t from, size_t to) {
    words = (uint64_t *)must(realloc(words, to));
    volatile uint64_t *now_there = words;
    if (from && (now_there[0] != from || now_there[from / 8 - 1] != ~from))
        fail("realloc lost the content", "the words at both ends of the old block differ");
    return words;
}

static void vectors(uint64_t *state) {
    const uint64_t count = params[VECTORS].value, limit = params[LIMIT].value;
    Vector *table = (Vector *)map_memory(count * sizeof(Vector));
    for (uint64_t i = params[COUNT].value; i > 0; i--) {
        Vector *vector = &table[random_size(state, 0, count - 1)];
        if (vector->size * 2 > vector->limit) {
            free(vector->words);
            vector->words = NULL;
            vector->size = 0;
            vector->limit = random_log(state, LEAST * 2, limit);
        }
        const size_t next = vector->size ? vector->size * 2 : LEAST;
        vector->words = grown(vector->words, vector->size, next);
        /* Pushes would fill the new half; a byte in each page stands for them. */
        for (size_t at = vector->size; at < next; at += PAGE_BYTES)
            ((volatile char *)vector->words)[at] = 'a';
        vector->size = next;
        write_ends(vector->words, next);
    }
    note_huge();
    for (uint64_t i = 0; i < count; i++)
        free(table[i].words);
    unmap_memory(table, count * sizeof(Vector));
}

static void huge(void) {
    const size_t last = (size_t)params[LAST].value << 20;
    for (uint64_t round = params[ROUNDS].value; round > 0; round--) {
        uint64_t *words = NULL;
        size_t from = 0;
        for (size_t to = HUGE_FIRST; to <= last; to *= 2) {
            words = grown(words, from, to);
            for (size_t at = from; at < from + (to - from) / 8; at += PAGE_BYTES)
                ((volatile char *)words)[at] = 'a';
            write_ends(words, to);
            from = to;
        }
        if (round == 1)
            note_huge();
        free(words);
    }
}

static void work(uint64_t thread) {
    uint64_t state = random_seed(thread);
    if (params[MODE].value == 1)
        vectors(&state);
    else
        huge();
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    /* A call of realloc for each size from 1 MiB on, and a free. */
    uint64_t calls = 1;
    for (uint64_t mib = 1; mib <= params[LAST].value; mib *= 2)
        calls++;
    return run_all(params[THREADS].value, work,
                   params[MODE].value == 1 ? params[COUNT].value : params[ROUNDS].value * calls);
}
