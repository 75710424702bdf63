/* The file of a plan, and the words of a thread (crates/trace/src/plan describes both). */
#ifndef MALLARD_PLAN_H
#define MALLARD_PLAN_H

#include "memory.h"

enum { HEAD_WORDS = 512, CURVE_AT_WORD = 16, TIMES_AT_WORD = 128 };
#define PLAN_MAGIC UINT64_C(0x03006e616c706d00)

typedef struct {
    uint64_t magic, threads, lanes, slots, span_us, operations, tick_us, table_at, peak, processes;
} Head;

typedef struct {
    uint64_t at, words;
    uint32_t lane, turn; /* its lane, and how many threads had that before */
    uint64_t first_us, process;
} Stream;

enum { CONTROL, MALLOC, CALLOC, REALLOC, FREE, SIZED_FREE, LONG, QUERY };
enum { NOTHING, TICK, SPAWN, END, TRIM, FORK, PAUSE, POINT };
enum { LONG_MALLOC, LONG_CALLOC, LONG_ALIGNED };

static int plan_file;
static Head head;
static Stream *streams;

/* ---- the words of a thread ------------------------------------------------------------------- */

enum { BUFFER_WORDS = 16384 };

typedef struct {
    uint64_t at, left;
    const uint64_t *next, *end;
    uint64_t *buffer;
} Words;

__attribute__((noinline, cold)) static void refill(Words *words) {
    const uint64_t count = words->left < BUFFER_WORDS ? words->left : BUFFER_WORDS;
    size_t done = 0;
    while (done < count * 8) {
        ssize_t got = pread(plan_file, (char *)words->buffer + done, count * 8 - done,
                            (off_t)(words->at + done));
        if (got <= 0)
            fail("cannot read the plan", got ? strerror(errno) : "it ends early");
        done += (size_t)got;
    }
    words->at += count * 8;
    words->left -= count;
    words->next = words->buffer;
    words->end = words->buffer + count;
}

static inline int more(Words *words) { return words->next < words->end || words->left; }

static inline uint64_t next_word(Words *words) {
    if (__builtin_expect(words->next == words->end, 0))
        refill(words);
    return *words->next++;
}

#endif
