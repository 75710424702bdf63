/* Code that both the program and the module compile. */
#include <stdio.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include "deepbind.h"

static char *make(enum way way, const char *file) {
    size_t size = sizeof LINE;
    char *block = NULL;
    void *aligned = NULL;
    switch (way) {
    case MALLOC:
        block = (char *)malloc(size);
        break;
    case CALLOC:
        block = (char *)calloc(1, size);
        break;
    case REALLOC:
        block = (char *)realloc(malloc(8), size);
        break;
    case REALLOCARRAY:
        block = (char *)reallocarray(NULL, size, 1);
        break;
    case POSIX_MEMALIGN:
        if (posix_memalign(&aligned, 256, size) == 0)
            block = (char *)aligned;
        break;
    case ALIGNED_ALLOC:
        block = (char *)aligned_alloc(64, 128);
        break;
    case MEMALIGN:
        block = (char *)memalign(4096, size);
        break;
    case STRDUP:
        return strdup(LINE);
    case ASPRINTF:
        return asprintf(&block, "%s", LINE) < 0 ? NULL : block;
    case GETLINE: {
        FILE *stream = fopen(file, "r");
        size_t room = 0;
        if (stream == NULL || getline(&block, &room, stream) < 0)
            return NULL;
        fclose(stream);
        block[strcspn(block, "\n")] = 0;
        return block;
    }
    default:
        return NULL;
    }
    if (block != NULL)
        memcpy(block, LINE, size);
    return block;
}

static void take(char *block) {
    if (strcmp(block, LINE) != 0) {
        fprintf(stderr, "a block holds '%s'\n", block);
        abort();
    }
    free(block);
}

static char *grow(char *block, size_t size) { return (char *)realloc(block, size); }
