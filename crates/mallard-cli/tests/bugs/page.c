/* Clears 4 KiB behind a block, because a length is in the wrong unit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static unsigned char *make(size_t rows) { return calloc(rows, 64); }

__attribute__((noinline)) static void clear(unsigned char *image, size_t rows) {
    memset(image, 0, rows * 64 + 4096); /* BUG */
}

int main(void) {
    unsigned char *images[32];
    for (int i = 0; i < 32; i++)
        images[i] = make(100);
    clear(images[3], 100);
    int sum = 0;
    for (int i = 0; i < 32; i++)
        sum += images[i][0];
    printf("%d\n", sum);
    for (int i = 0; i < 32; i++)
        free(images[i]);
    return 0;
}
