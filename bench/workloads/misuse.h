/* What the programs of `mallard bench misuse` share: how a case is chosen, aged and ended.
 *
 *     misuse list                     one line for each case: set, kind, name, sizes, what it does
 *     misuse CASE SIZE SEED           the case on blocks of SIZE bytes; SEED 0 is a fresh heap
 *
 * A case prints `begins` and then misuses the heap. It ends with
 *
 *     WENT_ON     if nothing and nobody kept it from that,
 *     PREVENTED   if the misuse had no effect, such as a freed block that is not handed out again,
 *     a signal    if the allocator or the kernel stopped it.
 *
 * All calls go through volatile pointers: the compiler knows neither what they do nor that a block
 * is dead, so it neither removes nor reorders anything. */
#ifndef MALLARD_MISUSE_H
#define MALLARD_MISUSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PREVENTED = 40, WENT_ON = 42 };

typedef struct {
    const char *set;  /* `counted`, or `further`: kinds beyond those that other tables count */
    const char *kind; /* the row of the table */
    const char *name;
    const char *sizes;
    const char *what;
    void (*misuse)(size_t size);
} Case;

static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static void *(*volatile fill)(void *, int, size_t) = memset;

__attribute__((noreturn)) static void wrong(const char *what) {
    fprintf(stderr, "misuse: %s\n", what);
    _exit(2);
}

__attribute__((noreturn)) static inline void prevented(void) { _exit(PREVENTED); }

/* A block whose every byte is set. */
static inline char *block(size_t size) {
    char *p = (char *)take(size);
    if (!p)
        wrong("no memory");
    fill(p, 'b', size);
    return p;
}

/* ---- ageing ---------------------------------------------------------------------------------- */

enum { AGE_BLOCKS = 60000 };

static inline uint64_t age_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* As many sizes in each power of two: one of 16 blocks has up to 512 KiB, others up to 4 KiB. */
static inline size_t age_size(uint64_t *state) {
    uint64_t draw = age_next(state) >> 20;
    unsigned least = draw % 16 ? 3 : 12, most = draw % 16 ? 11 : 18;
    unsigned power = least + (unsigned)((draw >> 4) % (most - least + 1));
    return ((size_t)1 << power) + (size_t)((draw >> 16) & (((uint64_t)1 << power) - 1));
}

/* Allocates blocks of random sizes, of which two thirds are freed in between, at random. */
static void age(uint64_t seed) {
    static void *live[AGE_BLOCKS]; /* not on the heap */
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    for (int i = 0; i < 16; i++)
        age_next(&state);
    size_t count = 0;
    for (int i = 0; i < AGE_BLOCKS; i++) {
        char *p = (char *)take(age_size(&state));
        if (!p)
            wrong("no memory");
        p[0] = 'a';
        live[count++] = p;
        if ((age_next(&state) >> 20) % 3) {
            size_t victim = (size_t)((age_next(&state) >> 20) % count);
            give(live[victim]);
            live[victim] = live[--count];
        }
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

static int run(int argc, char **argv, const Case *cases, size_t count) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < count; i++)
            printf("%s\t%s\t%s\t%s\t%s\n", cases[i].set, cases[i].kind, cases[i].name,
                   cases[i].sizes, cases[i].what);
        return 0;
    }
    if (argc != 4)
        wrong("expected: list, or CASE SIZE SEED");
    const Case *chosen = NULL;
    for (size_t i = 0; i < count && !chosen; i++)
        if (strcmp(cases[i].name, argv[1]) == 0)
            chosen = &cases[i];
    if (!chosen)
        wrong("there is no such case");
    size_t size = strtoull(argv[2], NULL, 10);
    uint64_t seed = strtoull(argv[3], NULL, 10);
    if (seed)
        age(seed);
    /* Most cases are meant to crash: no core file, whatever the limit and the pattern. */
    prctl(PR_SET_DUMPABLE, 0);
    /* Not by stdio, which takes a buffer from the heap. */
    if (write(STDOUT_FILENO, "begins\n", 7) != 7)
        wrong("cannot write");
    chosen->misuse(size);
    _exit(WENT_ON);
}

#endif
