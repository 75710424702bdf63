/* Mallard as a second allocator in a running program, whose malloc does not change. The program
 * loads the library by name and looks up its functions one by one.
 *
 *   cc loader.c -o loader -pthread && ./loader /usr/local/lib/libmallard.so */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BLOCKS = 2000 };

static void *(*mallocx_)(size_t, int);
static void (*dallocx_)(void *, int);
static size_t (*sallocx_)(const void *, int);

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

/* Allocates blocks from both allocators, and frees each with its own. */
static void *work(void *argument) {
    char *theirs[BLOCKS], *own[BLOCKS];
    size_t bytes = 0;
    for (int i = 0; i < BLOCKS; i++) {
        theirs[i] = mallocx_(1 + i * 7, 0);
        own[i] = malloc(1 + i * 7);
        if (theirs[i] == NULL || own[i] == NULL)
            abort();
        memset(theirs[i], i, 1 + i * 7);
        memset(own[i], ~i, 1 + i * 7);
        bytes += sallocx_(theirs[i], 0);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (theirs[i][i * 7] != (char)i || own[i][i * 7] != (char)~i)
            abort();
        dallocx_(theirs[i], 0);
        free(own[i]);
    }
    *(size_t *)argument = bytes;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    void *malloc_before = dlsym(RTLD_DEFAULT, "malloc");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&mallocx_ = function(library, "mallocx");
    *(void **)&dallocx_ = function(library, "dallocx");
    *(void **)&sallocx_ = function(library, "sallocx");

    pthread_t threads[THREADS];
    size_t bytes[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &bytes[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *kept = mallocx_(100, 0);
    strcpy(kept, "what the library gave stays after dlclose");
    /* The library stays loaded, because threads that used it may still have to end. */
    dlclose(library);
    dlclose(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL));
    dallocx_(mallocx_(5000, 0), 0);

    printf("%zu bytes in %d threads\n", bytes[0] + bytes[1] + bytes[2] + bytes[3], THREADS);
    printf("malloc is %s\n",
           dlsym(RTLD_DEFAULT, "malloc") == malloc_before ? "untouched" : "replaced");
    printf("%s\n", kept);
    dallocx_(kept, 0);
    return 0;
}
