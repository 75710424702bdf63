// Holds blocks of known sites, and then waits, works on, or crashes.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *kept[2000];
int count;

__attribute__((noinline)) void small_ones(void) {
    for (int i = 0; i < 1000; i++)
        kept[count++] = malloc(100);
}

__attribute__((noinline)) void large_ones(void) {
    for (int i = 0; i < 10; i++)
        kept[count++] = malloc(100000);
}

__attribute__((noinline)) void *passing(void *unused) {
    for (;;) {
        void *blocks[64];
        for (int i = 0; i < 64; i++)
            blocks[i] = malloc(i * 400 + 1);
        for (int i = 0; i < 64; i++)
            free(blocks[i]);
    }
    return unused;
}

// Of 64 blocks that one function asks for, another keeps one, all over the heap.
__attribute__((noinline)) void *brief(void) { return malloc(256); }
__attribute__((noinline)) void *pin(void) { return malloc(256); }

void pins(void) {
    static void *blocks[60000];
    for (int i = 0; i < 60000; i++)
        blocks[i] = i % 16 == 0 ? pin() : brief();
    for (int i = 0; i < 60000; i++)
        if (i % 16 != 0)
            free(blocks[i]);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "wait";
    small_ones();
    large_ones();
    if (strcmp(way, "busy") == 0)
        for (int i = 0; i < 3; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, passing, NULL);
        }
    if (strcmp(way, "pins") == 0)
        pins();
    if (strcmp(way, "crash") == 0)
        abort();
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
