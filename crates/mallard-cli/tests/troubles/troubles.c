/* Programs with one trouble each, for `mallard diagnose`: the first argument names it. Each runs
 * for one to two seconds. Where the figures need a minimum of work, that is CPU time, which a busy
 * machine gives late; where a call may be slowed by being counted, it is wall time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double now(void) { return seconds(CLOCK_MONOTONIC); }

static double end;

/* Whether a program that goes by wall time goes on. On a busy machine it goes on for up to 6 s
 * longer, until it has had the CPU time that samples need. */
static int lasts(void) {
    const double late = now() - end;
    return late < 0 || (late < 6 && seconds(CLOCK_PROCESS_CPUTIME_ID) < 0.4);
}

/* Whether the process has work left: 1.2 s of CPU time in all. */
static int works(void) { return seconds(CLOCK_PROCESS_CPUTIME_ID) < 1.2; }

static volatile unsigned sink;
static void compute(int steps) {
    unsigned x = 1;
    for (int i = 0; i < steps; i++)
        x = x * 1103515245 + 12345;
    sink = x;
}

static void in_threads(int count, void *(*run)(void *)) {
    pthread_t threads[64];
    for (uintptr_t i = 0; i < (uintptr_t)count; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* Run it with one arena: requests that no thread cache keeps. */
static void *locks(void *unused) {
    (void)unused;
    void *blocks[64] = {0};
    for (unsigned i = 0; lasts(); i++)
        for (int j = 0; j < 1000; j++) {
            unsigned slot = (i * 7 + j * 13) % 64;
            free(blocks[slot]);
            blocks[slot] = malloc(1500 + slot * 50);
        }
    return NULL;
}

/* The top of the heap goes back and comes again. */
static void trim(void) {
    enum { COUNT = 40, SIZE = 100000 };
    void *blocks[COUNT];
    while (lasts()) {
        for (int i = 0; i < COUNT; i++)
            blocks[i] = memset(malloc(SIZE), 1, SIZE);
        for (int i = COUNT; i-- > 0;)
            free(blocks[i]);
    }
}

/* One large block after another; run it with a fixed threshold of mmap. */
static void mapped(void) {
    enum { SIZE = 1 << 20 };
    while (lasts())
        free(memset(malloc(SIZE), 1, SIZE));
}

/* Blocks so large that it takes milliseconds to give one back. */
static void slow(void) {
    enum { SIZE = 128 << 20 };
    while (works())
        free(memset(malloc(SIZE), 1, SIZE));
}

/* The heap grows, then keeps its size for about as long: a leak would grow to the end. */
static void grow(void) {
    const double began = now();
    for (int i = 0; i < 3000; i++)
        memset(malloc(100000), 1, 100000);
    const double grown = now(), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    /* After a slow growth, more CPU time would make page faults too small a part of it. */
    while (now() < grown + 0.25 + (grown - began) * 3 / 4)
        if (seconds(CLOCK_PROCESS_CPUTIME_ID) < used + 0.3)
            compute(1000000);
        else
            usleep(1000);
}

/* One thread allocates, another frees. */
enum { BLOCKS = 4096 };
static void *passed[2][BLOCKS];
static sem_t empty, full;
static void *hand_off(void *who) {
    for (unsigned turn = 0;; turn++) {
        void **blocks = passed[turn % 2];
        sem_wait(who == 0 ? &empty : &full);
        if (who != 0 && blocks[0] == NULL)
            return NULL;
        for (int i = 0; i < BLOCKS; i++)
            if (who == 0)
                blocks[i] = malloc(100 + i % 100);
            else
                free(blocks[i]);
        const int last = who == 0 && !works();
        if (last)
            for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]), blocks[i] = NULL;
        sem_post(who == 0 ? &full : &empty);
        if (last)
            return NULL;
    }
}

/* Frees most of a heap: every fourth block stays, or only the last. Then works on for longer. */
static void kept(int every) {
    enum { COUNT = 80000 };
    static void *blocks[COUNT];
    const double began = now();
    for (int i = 0; i < COUNT; i++)
        blocks[i] = memset(malloc(1000), 1, 1000);
    usleep(200000); /* the heap is looked at every 50 ms, and it must be seen at its height */
    for (int i = 0; i < COUNT - 1; i++)
        if (every == 0 || i % every != 0)
            free(blocks[i]);
    const double freed = now();
    while (now() < freed + 0.7 + (freed - began))
        compute(1000000);
}

/* The heap grows in wall time, so that the growth is even where the CPU time is not. */
static void leak(void) {
    const double began = now();
    double bytes = 0;
    while (works()) {
        for (; bytes < (now() - began) * 25e6; bytes += 100000)
            memset(malloc(100000), 1, 100000);
        compute(5000000);
        usleep(200);
    }
}

/* One mutex for all of the work. Its owner may take it again before the others get a CPU, so that
 * some of them wait all the time. */
static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

static void *own_lock(void *unused) {
    int last = 0;
    /* Threads are watched from their first call on, and do not wait for each other in it. */
    free(malloc(10));
    while (!last) {
        pthread_mutex_lock(&own);
        last = !works();
        if (!last)
            compute(2000000);
        pthread_mutex_unlock(&own);
    }
    return unused;
}

/* Reads what a slow writer sends. */
static void input(void) {
    int pipes[2];
    char byte;
    if (pipe(pipes) != 0)
        exit(3);
    if (fork() == 0) {
        close(pipes[0]);
        for (int i = 0; i < 30; i++) {
            usleep(50000);
            if (write(pipes[1], "x", 1) != 1)
                break;
        }
        _exit(0);
    }
    close(pipes[1]);
    while (read(pipes[0], &byte, 1) == 1)
        compute(10000);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    end = now() + 1;
    free(malloc(10));
    if (strcmp(what, "locks") == 0)
        in_threads(8, locks);
    else if (strcmp(what, "trim") == 0)
        trim();
    else if (strcmp(what, "mmap") == 0)
        mapped();
    else if (strcmp(what, "slow") == 0)
        slow();
    else if (strcmp(what, "grow") == 0)
        grow();
    else if (strcmp(what, "hand-off") == 0)
        sem_init(&empty, 0, 2), sem_init(&full, 0, 0), in_threads(2, hand_off);
    else if (strcmp(what, "pinned") == 0)
        kept(4);
    else if (strcmp(what, "held-back") == 0)
        kept(0);
    else if (strcmp(what, "leak") == 0)
        leak();
    else if (strcmp(what, "own-lock") == 0)
        in_threads(8, own_lock);
    else if (strcmp(what, "input") == 0)
        input();
    else if (strcmp(what, "compute") == 0)
        while (works())
            compute(1000000);
    else if (strcmp(what, "idle") == 0)
        usleep(1500000);
    else if (strcmp(what, "crash") == 0) {
        locks(NULL);
        abort();
    } else
        return 2;
    return 0;
}
