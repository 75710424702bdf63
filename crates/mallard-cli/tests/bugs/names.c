/* A library that gives out a buffer which stays its own. */
#include <stdio.h>
#include <stdlib.h>

static char *buffer;

char *name_of(int number) {
    if (!buffer)
        buffer = malloc(48);
    snprintf(buffer, 48, "number %d", number);
    return buffer;
}
