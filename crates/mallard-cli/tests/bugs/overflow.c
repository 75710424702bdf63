/* Writes one element too many into a table. */
#include <stdio.h>
#include <stdlib.h>

static short *make_table(size_t length) { return malloc(length * sizeof(short)); }

static void fill(short *table, size_t length) {
    for (size_t i = 0; i <= length; i++)
        table[i] = (short)i; /* BUG */
}

int main(void) {
    char *around[64];
    for (size_t i = 0; i < 64; i++)
        around[i] = malloc(16 + i);
    short *table = make_table(25);
    fill(table, 25);
    printf("%d\n", table[24]);
    for (size_t i = 0; i < 64; i++)
        free(around[i]);
    free(table);
    return 0;
}
