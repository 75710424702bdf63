/* The library, loaded into a running program (path as argument) beside the C library's malloc. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

static void *(*its_malloc)(size_t);
static void *(*its_realloc)(void *, size_t);
static void (*its_free)(void *);

static void *work(void *argument) {
    unsigned char *blocks[100] = {0};
    for (unsigned i = 0; i < 20000; i++) {
        unsigned slot = i * 31 % 100;
        its_free(blocks[slot]);
        size_t n = (i * 7919u + (unsigned)(uintptr_t)argument) % 40000 + 1;
        blocks[slot] = its_malloc(n);
        CHECK(blocks[slot] != NULL);
        memset(blocks[slot], (int)i, n);
        if (i % 7 == 0) {
            blocks[slot] = its_realloc(blocks[slot], n * 2);
            CHECK(blocks[slot] != NULL && blocks[slot][n - 1] == (unsigned char)i);
        }
        free(malloc(n));
    }
    for (int i = 0; i < 100; i++)
        its_free(blocks[i]);
    return its_malloc(10);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    its_malloc = (void *(*)(size_t))dlsym(library, "malloc");
    its_realloc = (void *(*)(void *, size_t))dlsym(library, "realloc");
    its_free = (void (*)(void *))dlsym(library, "free");
    CHECK(its_malloc != NULL && its_realloc != NULL && its_free != NULL &&
          (void *)its_malloc != (void *)malloc);
    its_free(work(NULL));
    for (int round = 0; round < 3; round++) {
        pthread_t threads[8];
        for (size_t i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
        for (size_t i = 0; i < 8; i++) {
            void *block;
            CHECK(pthread_join(threads[i], &block) == 0);
            its_free(block);
        }
    }
    printf("loaded ok\n");
    return 0;
}
