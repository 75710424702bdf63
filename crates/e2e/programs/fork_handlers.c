/* A library whose constructor registers fork handlers, perhaps before the first allocation. The
 * handlers allocate and free in all three phases, also through a stream. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *kept[400];

static void before(void) {
    for (int i = 0; i < 400; i++) {
        kept[i] = malloc(50 + i * 333);
        if (!kept[i])
            abort();
        memset(kept[i], 1, 20);
    }
}

static void after(void) {
    for (int i = 0; i < 400; i++)
        free(kept[i]);
    char *text = strdup("text");
    text = realloc(text, 200000);
    free(text);
    free(calloc(5, 1 << 20));
    FILE *stream = fopen("/dev/null", "w");
    fprintf(stream, "%s", "text");
    fclose(stream);
}

__attribute__((constructor)) static void init(void) { pthread_atfork(before, after, after); }
