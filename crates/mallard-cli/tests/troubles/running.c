/* Programs that run until they are killed, for `mallard diagnose --pid`. Each writes a line once it
 * is in the state that its first argument names. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 150000, SIZE = 500, KEPT_OF = 8 };

static void *blocks[BLOCKS];

/* A block in each page pins pages that are nearly free. It goes on to allocate. */
static void pinned(void) {
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(SIZE), 1, SIZE);
    for (int i = 0; i < BLOCKS; i++)
        if (i % KEPT_OF)
            free(blocks[i]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        void *some[2000];
        for (int i = 0; i < 2000; i++)
            some[i] = malloc(2000 + i);
        for (int i = 0; i < 2000; i++)
            free(some[i]);
        usleep(5000);
    }
}

/* Large blocks, each mapped, touched and unmapped (glibc, with a threshold of 128 KiB). */
static void mapped(void) {
    puts("ready");
    fflush(stdout);
    for (;;) {
        size_t size = 1 << 20;
        free(memset(malloc(size), 1, size));
    }
}

/* Pages of a file, each touched once. */
static void file(void) {
    FILE *content = tmpfile();
    size_t size = 4 << 20;
    if (content == NULL || ftruncate(fileno(content), size) != 0)
        exit(1);
    puts("ready");
    fflush(stdout);
    for (;;) {
        char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(content), 0);
        for (size_t i = 0; i < size; i += 4096)
            at[i] = 1;
        usleep(30000);
        munmap(at, size);
    }
}

/* Threads that wait for the lock of the only arena, with requests that no thread cache keeps. */
static void *lock(void *unused) {
    void *some[64] = {0};
    for (unsigned i = 0;; i++) {
        unsigned slot = i * 13 % 64;
        free(some[slot]);
        some[slot] = malloc(1500 + slot * 50);
    }
    return unused;
}

static void locks(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, lock, NULL) != 0)
            exit(1);
    puts("ready");
    fflush(stdout);
    pause();
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "pinned") == 0)
        pinned();
    else if (strcmp(what, "mapped") == 0)
        mapped();
    else if (strcmp(what, "file") == 0)
        file();
    else if (strcmp(what, "locks") == 0)
        locks();
    return 2;
}
