/* Programs whose calls are known exactly, to be recorded. The sizes are used by nothing else. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 12345, OTHER = 54321, COUNT = 20000 };

static void *keep[COUNT];

static void *pairs(void *argument) {
    for (int i = 0; i < COUNT; i++)
        free(malloc(SIZE));
    return argument;
}

static void *give(void *argument) {
    for (int i = 0; i < COUNT; i++)
        __atomic_store_n(&keep[i], malloc(SIZE), __ATOMIC_RELEASE);
    return argument;
}

static void *take(void *argument) {
    for (int i = 0; i < COUNT; i++) {
        void *block;
        while (!(block = __atomic_load_n(&keep[i], __ATOMIC_ACQUIRE)))
            ;
        free(block);
    }
    return argument;
}

static pthread_key_t key;

static void *brief(void *argument) {
    pthread_setspecific(key, malloc(SIZE));
    return argument;
}

static void *tiny(void *argument) {
    for (int i = 0; i < 10; i++)
        free(malloc(SIZE + i));
    return argument;
}

static void one_after_the_other(void *(*work)(void *)) {
    for (int i = 0; i < 10000; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, work, 0);
        pthread_join(thread, 0);
    }
}

static void together(void *(*one)(void *), void *(*other)(void *)) {
    pthread_t threads[2];
    pthread_create(&threads[0], 0, one, 0);
    pthread_create(&threads[1], 0, other, 0);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "all") == 0) { /* every kind of call, once */
        void *block = malloc(SIZE);
        block = realloc(block, OTHER);
        free(block);
        free(calloc(1, SIZE));
        free(aligned_alloc(64, 64 * 200));
        char *large = malloc(64 << 20); /* of which half is touched */
        for (size_t at = 0; at < 32 << 20; at += 4096)
            large[at] = 1;
        free(large);
        void *volatile none = malloc((size_t)1 << 60);
        free(none);
    } else if (strcmp(what, "pairs") == 0) {
        together(pairs, pairs);
    } else if (strcmp(what, "handoff") == 0) {
        together(give, take);
    } else if (strcmp(what, "brief") == 0) { /* threads that free in a destructor */
        pthread_key_create(&key, free);
        one_after_the_other(brief);
    } else if (strcmp(what, "tiny") == 0) {
        one_after_the_other(tiny);
    } else if (strcmp(what, "fork") == 0) {
        for (int i = 0; i < 100; i++)
            keep[i] = malloc(SIZE);
        if (fork() == 0) {
            for (int i = 0; i < 100; i++)
                free(keep[i]);
            free(malloc(OTHER));
            _exit(0);
        }
        wait(0);
        execl(argv[0], argv[0], "all", (char *)0);
    } else if (strcmp(what, "kill") == 0) {
        for (int i = 0; i < COUNT; i++)
            keep[i] = malloc(SIZE);
        raise(SIGKILL);
    } else if (strcmp(what, "endless") == 0) {
        for (;;) {
            for (int i = 0; i < 100; i++)
                free(malloc(SIZE));
            usleep(1000);
        }
    }
    return 0;
}
