/* A program that spends a known part of its time inside malloc and free, for scripts/share.sh.
 *
 *   share plan PERCENT     print the numbers of rounds of a second with this share, for `run`
 *   share run ALLOCATING COMPUTING
 *
 * The plan is made once, with nothing before malloc. A run does fixed work, so that what slows
 * malloc does not change the plan. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 256, STEPS = 2000, SLICES = 200 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *blocks[BLOCKS];
static unsigned next = 1;

/* A round inside: blocks of changing sizes replace older ones. */
__attribute__((noinline)) static void allocating(void) {
    for (int i = 0; i < BLOCKS; i++) {
        next = next * 1103515245 + 12345;
        unsigned slot = next >> 8 & (BLOCKS - 1);
        free(blocks[slot]);
        blocks[slot] = malloc(16 + (next >> 16 & 1023));
    }
}

static volatile unsigned sink;

/* A round outside. */
__attribute__((noinline)) static void computing(void) {
    unsigned x = sink;
    for (int i = 0; i < STEPS; i++)
        x = x * 1103515245 + 12345;
    sink = x;
}

/* Seconds of a round. */
static double measured(void (*round)(void)) {
    enum { ROUNDS = 20000 };
    for (int i = 0; i < ROUNDS / 10; i++)
        round();
    double begun = now();
    for (int i = 0; i < ROUNDS; i++)
        round();
    return (now() - begun) / ROUNDS;
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "plan") == 0) {
        double share = atof(words[2]) / 100;
        if (share <= 0 || share >= 1) {
            fprintf(stderr, "share: %s is no percentage between 0 and 100\n", words[2]);
            return 2;
        }
        printf("%.0f %.0f\n", share / measured(allocating), (1 - share) / measured(computing));
        return 0;
    }
    if (count != 4 || strcmp(words[1], "run") != 0) {
        fprintf(stderr, "share: plan PERCENT, or run ALLOCATING COMPUTING\n");
        return 2;
    }
    /* In slices, so that both are mixed through the whole run. */
    long inside = atol(words[2]), outside = atol(words[3]);
    for (long slice = 0; slice < SLICES; slice++) {
        for (long i = inside * slice / SLICES; i < inside * (slice + 1) / SLICES; i++)
            allocating();
        for (long i = outside * slice / SLICES; i < outside * (slice + 1) / SLICES; i++)
            computing();
    }
    return 0;
}
