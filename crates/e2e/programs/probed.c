/* Allocates and frees blocks of many sizes, and says how many bytes it asked for. */
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 40000, HELD = 64 };

int main(void) {
    static void *held[HELD];
    /* A buffer of the library's own would be a block that is never freed. */
    static char line[256];
    setvbuf(stdout, line, _IOFBF, sizeof line);
    unsigned long requested = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = 100 + (size_t)round * 7919 % 9000;
        /* Now and then a block of whole pages. */
        if (round % 100 == 99)
            size *= 40;
        void **block = &held[round % HELD];
        free(*block);
        *block = malloc(size);
        requested += size;
    }
    for (int i = 0; i < HELD; i++)
        free(held[i]);
    printf("requested %lu\n", requested);
    return 0;
}
