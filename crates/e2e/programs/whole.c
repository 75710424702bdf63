/* A C program whose blocks come from many places: recursion, callbacks of the C library, its own
 * blocks, threads and their destructors, constructors, and functions with large frames. Its stacks
 * have to be whole (tests/profiles). */
#include <locale.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *kept[1000];
static int next;

__attribute__((noinline)) static void keep(size_t size) {
    void *block = malloc(size);
    if (next < 1000) {
        kept[next++] = block;
        return;
    }
    free(block);
}

__attribute__((constructor)) static void at_start(void) { keep(100); }

__attribute__((noinline)) static int climb(int n, const char *text) {
    char *copy = strdup(text);
    int size = n * 8;
    /* A frame whose length is not known before. */
    volatile char room[size + 1];
    room[size] = copy[0];
    int below = n == 0 ? 0 : climb(n - 1, copy);
    free(copy);
    return below + room[size];
}

static int compare(const void *a, const void *b) {
    keep(24);
    return *(const int *)a - *(const int *)b;
}

static void at_end(void *block) {
    keep(48);
    free(block);
}

static pthread_key_t key;

__attribute__((noinline)) static void work(unsigned seed) {
    int numbers[300];
    for (int i = 0; i < 300; i++)
        numbers[i] = (int)((i * 37 + seed) % 300);
    qsort(numbers, 300, sizeof *numbers, compare);
    void *tree = NULL;
    for (int i = 0; i < 300; i++)
        tsearch(&numbers[i], &tree, compare);
    while (tree != NULL)
        tdelete(*(int **)tree, &tree, compare);
    climb(100, "some text that is copied");
    for (int i = 0; i < 500; i++) {
        char *line = NULL;
        if (asprintf(&line, "%d %s %f", i, "words", i * 0.5) > 0)
            free(line);
    }
    FILE *file = fopen("/proc/self/status", "r");
    if (file != NULL) {
        char *line = NULL;
        size_t size = 0;
        while (getline(&line, &size, file) > 0)
            keep(strlen(line));
        free(line);
        fclose(file);
    }
}

static void *run(void *seed) {
    pthread_setspecific(key, malloc(64));
    work((unsigned)(size_t)seed);
    return NULL;
}

int main(void) {
    setlocale(LC_ALL, "");
    pthread_key_create(&key, at_end);
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    work(99);
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
