/* Frees a buffer that belongs to a library. */
#include <stdio.h>
#include <stdlib.h>

char *name_of(int number);

static void show(int number) {
    char *name = name_of(number);
    puts(name);
    free(name); /* BUG */
}

int main(void) {
    show(1);
    char *own = malloc(200);
    show(2);
    free(own);
    return 0;
}
