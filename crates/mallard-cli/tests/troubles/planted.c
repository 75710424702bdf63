/* Programs with one planted trouble each, for the advice of `mallard diagnose`: the first argument
 * names it. Their work is fixed, so that what a suggestion brings shows in page faults, resident
 * memory or CPU time, whatever else the machine does. */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void milliseconds(int count) { usleep(count * 1000); }

static void *filled(size_t size) { return memset(malloc(size), 1, size); }

/* A number that looks random, the same in every run. */
static unsigned next(unsigned *state) { return *state = *state * 1664525u + 1013904223u; }

static void in_threads(int count, void *(*run)(void *)) {
    pthread_t threads[64];
    for (uintptr_t i = 0; i < (uintptr_t)count; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* Blocks that glibc's thread caches do not keep; run it with one arena. */
static void *contend(void *unused) {
    (void)unused;
    void *blocks[64] = {0};
    for (unsigned i = 0; i < 1000000; i++) {
        unsigned slot = (i * 7 + i / 64) % 64;
        free(blocks[slot]);
        blocks[slot] = malloc(1500 + slot * 50);
    }
    return NULL;
}

/* The top of the heap goes back and comes again. */
static void trimmed(void) {
    enum { COUNT = 40, SIZE = 100000 };
    void *blocks[COUNT];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < COUNT; i++)
            blocks[i] = filled(SIZE);
        for (int i = COUNT; i-- > 0;)
            free(blocks[i]);
    }
}

/* Each block is larger than any threshold up to which glibc keeps one. */
static void pictures(void) {
    for (int i = 0; i < 25; i++) {
        free(filled(40 << 20));
        milliseconds(2);
    }
}

/* Fills a heap, frees most of it, and sleeps: every so many blocks stay, or only the last. */
static void kept(int every) {
    enum { COUNT = 200000 };
    static void *blocks[COUNT];
    unsigned state = 1;
    for (int i = 0; i < COUNT; i++)
        blocks[i] = filled(40 + (next(&state) >> 8) % 500);
    milliseconds(200); /* it is looked at every 50 ms, and must be seen at its height */
    for (int i = 0; i < COUNT - 1; i++)
        if (i % every != 0)
            free(blocks[i]);
    milliseconds(2500);
}

/* Threads need much memory one after the other, and each has an arena of its own. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static void *in_turn(void *unused) {
    enum { COUNT = 20000, SIZE = 800 };
    (void)unused;
    static void *blocks[COUNT];
    pthread_mutex_lock(&turn);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = filled(SIZE);
    void *last = filled(SIZE);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    pthread_mutex_unlock(&turn);
    milliseconds(1500);
    return last;
}

/* Threads free blocks into their caches, and sleep on. */
static void *cached(void *unused) {
    (void)unused;
    void *blocks[32];
    for (size_t size = 16 << 10; size <= 1 << 20; size *= 2) {
        for (int i = 0; i < 32; i++)
            blocks[i] = filled(size);
        for (int i = 0; i < 32; i++)
            free(blocks[i]);
    }
    milliseconds(60000);
    return NULL;
}
static void caches(void) {
    pthread_t thread;
    for (int i = 0; i < 16; i++) {
        pthread_create(&thread, NULL, cached, NULL);
        milliseconds(60);
    }
    free(filled(96 << 20)); /* free pages beside them, which decay alone returns */
    milliseconds(3000);
}

/* A heap grows, and keeps its size for longer: a leak would grow to the end. */
static void grown(void) {
    struct timespec began, grew;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int i = 0; i < 3000; i++)
        filled(100000);
    clock_gettime(CLOCK_MONOTONIC, &grew);
    const long took =
        (grew.tv_sec - began.tv_sec) * 1000 + (grew.tv_nsec - began.tv_nsec) / 1000000;
    milliseconds(300 + took);
}

/* Large blocks stay one by one, and the others are freed between them. */
static void spaced(void) {
    enum { COUNT = 160, SIZE = 1 << 20 };
    static void *blocks[COUNT];
    free(malloc(2 * SIZE)); /* raises the threshold of mmap above them */
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = filled(SIZE);
        filled(100);
    }
    milliseconds(200);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    milliseconds(2000);
}

static void __attribute__((noinline)) forgets(void) { filled(100000); }
static void leak(void) {
    for (int i = 0; i < 200; i++) {
        forgets();
        milliseconds(5);
    }
}

/* One thread of each pair allocates, the other frees. */
enum { PAIRS = 4, BLOCKS = 4096, BATCHES = 200 };
static void *passed[PAIRS][2][BLOCKS];
static sem_t empty[PAIRS], full[PAIRS];
static void *hand_off(void *number) {
    const uintptr_t pair = (uintptr_t)number / 2, frees = (uintptr_t)number % 2;
    unsigned state = (uintptr_t)number + 1;
    for (unsigned batch = 0; batch < BATCHES; batch++) {
        void **blocks = passed[pair][batch % 2];
        sem_wait(frees ? &full[pair] : &empty[pair]);
        for (int i = 0; i < BLOCKS; i++)
            if (frees)
                free(blocks[i]);
            else
                blocks[i] = malloc(100 + (next(&state) >> 10) % 1500);
        sem_post(frees ? &empty[pair] : &full[pair]);
    }
    return NULL;
}
static void pairs(void) {
    for (int i = 0; i < PAIRS; i++)
        sem_init(&empty[i], 0, 2), sem_init(&full[i], 0, 0);
    in_threads(2 * PAIRS, hand_off);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "contend") == 0)
        in_threads(8, contend);
    else if (strcmp(what, "trimmed") == 0)
        trimmed();
    else if (strcmp(what, "pictures") == 0)
        pictures();
    else if (strcmp(what, "held-back") == 0)
        kept(1000000);
    else if (strcmp(what, "pinned") == 0)
        kept(16);
    else if (strcmp(what, "arenas") == 0)
        in_threads(16, in_turn);
    else if (strcmp(what, "caches") == 0)
        caches();
    else if (strcmp(what, "grown") == 0)
        grown();
    else if (strcmp(what, "spaced") == 0)
        spaced();
    else if (strcmp(what, "leak") == 0)
        leak();
    else if (strcmp(what, "hand-off") == 0)
        pairs();
    else
        return 2;
    return 0;
}
