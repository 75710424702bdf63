/* malloc_stats_print in all its forms. The arguments are the form and the letters. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "mallard.h"

static void to_stdout(void *opaque, const char *text) {
    CHECK(opaque == &to_stdout);
    fputs(text, stdout);
}

/* A callback that allocates and requests the statistics itself. */
static void busily(void *opaque, const char *text) {
    free(malloc(strlen(text) + 1));
    uint64_t epoch = 1;
    CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
    to_stdout(opaque, text);
}

static void message(void *opaque, const char *text) {
    CHECK(opaque == NULL);
    fputs(text, stdout);
}

enum { THREADS = 4, BLOCKS = 3000 };
static void *blocks[THREADS][BLOCKS];
static pthread_barrier_t arrived, leave;

static void *fill(void *argument) {
    size_t me = (size_t)argument;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t n = i % 50 == 0 ? i * 100 : i * 31 % 2000;
        blocks[me][i] = malloc(n + 1);
        CHECK(blocks[me][i] != NULL);
    }
    /* Frees blocks of any thread into this thread's cache. */
    for (size_t i = me; i < BLOCKS; i += 3) {
        free(blocks[me][i]);
        blocks[me][i] = NULL;
    }
    pthread_barrier_wait(&arrived);
    pthread_barrier_wait(&leave);
    return NULL;
}

/* Prints while threads with filled caches wait. */
static void print_among_threads(void (*write)(void *, const char *), const char *letters) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&arrived, NULL, THREADS + 1);
    pthread_barrier_init(&leave, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, fill, (void *)i) == 0);
    pthread_barrier_wait(&arrived);
    malloc_stats_print(write, &to_stdout, letters);
    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Twelve mebibytes through the caches, and the same amount past them. */
static void pass_bytes(void) {
    static void *held[12 << 10];
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        CHECK((held[i] = malloc(1024)) != NULL);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        free(held[i]);
    for (int i = 0; i < 12; i++) {
        void *volatile p = malloc(1 << 20);
        CHECK(p != NULL);
        free(p);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2 || count == 3);
    const char *what = arguments[1], *letters = count == 3 ? arguments[2] : NULL;
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    /* This thread has an arena too, whatever the C library allocates for it. */
    free(malloc(1));
    if (strcmp(what, "plain") == 0) {
        print_among_threads(to_stdout, letters);
    } else if (strcmp(what, "busy") == 0) {
        print_among_threads(busily, letters);
    } else if (strcmp(what, "prefixed") == 0) {
        je_malloc_stats_print(to_stdout, &to_stdout, letters);
    } else if (strcmp(what, "message") == 0) {
        malloc_message = message;
        malloc_stats_print(NULL, NULL, letters);
    } else if (strcmp(what, "stderr") == 0) {
        malloc_stats_print(NULL, NULL, letters);
    } else if (strcmp(what, "arenas") == 0) {
        unsigned arena;
        size_t length = sizeof arena;
        CHECK(mallctl("arenas.create", &arena, &length, NULL, 0) == 0);
        CHECK(mallocx(3000000, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE) != NULL);
        char name[40];
        snprintf(name, sizeof name, "arena.%u.destroy", arena);
        CHECK(mallctl(name, NULL, NULL, NULL, 0) == 0);
        CHECK(mallctl("arenas.create", &arena, &length, NULL, 0) == 0);
        CHECK(mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE) != NULL);
        print_among_threads(to_stdout, letters);
    } else {
        CHECK(strcmp(what, "pass") == 0);
        pass_bytes();
    }
    return 0;
}
