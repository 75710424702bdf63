/* What differs on C libraries before glibc 2.34, whose threads are a library of their own:
 *
 *   alone    a process that does without threads, and has no libpthread where that exists
 *   late     it loads libpthread after its first calls of malloc, and creates threads by it
 *   threads  it is linked with -pthread
 *
 * Each ends with a line of what it did. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
#pragma weak pthread_create
#pragma weak pthread_join

typedef int Create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int Join(pthread_t, void **);

enum { BLOCKS = 1000, ROUNDS = 20, CREW = 4, CREWS = 25 };

static void *work(void *result) {
    unsigned char *blocks[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(1 + i * 7);
            CHECK(blocks[i] != NULL);
            blocks[i][0] = (unsigned char)i;
        }
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(blocks[i][0] == (unsigned char)i);
            free(blocks[i]);
        }
    }
    return result;
}

static void fork_and_work(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work(NULL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Caches whose threads have ended hold nothing: many crews need no more memory than a few. */
static void crews(Create *create, Join *join) {
    for (int n = 0; n < CREWS; n++) {
        pthread_t crew[CREW];
        for (int i = 0; i < CREW; i++)
            CHECK(create(&crew[i], NULL, work, &crew[i]) == 0);
        fork_and_work();
        for (int i = 0; i < CREW; i++) {
            void *result;
            CHECK(join(crew[i], &result) == 0 && result == &crew[i]);
        }
    }
}

/* Whether the background thread can be switched on; it is off afterwards. */
static bool background(void) {
    bool on = true;
    if (mallctl == NULL || mallctl("background_thread", NULL, NULL, &on, sizeof on) != 0)
        return false;
    on = false;
    CHECK(mallctl("background_thread", NULL, NULL, &on, sizeof on) == 0);
    return true;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    work(NULL);
    fork_and_work();
    if (strcmp(way, "late") == 0) {
        void *library = dlopen("libpthread.so.0", RTLD_NOW);
        CHECK(library != NULL);
        Create *create = (Create *)dlsym(library, "pthread_create");
        Join *join = (Join *)dlsym(library, "pthread_join");
        CHECK(create != NULL && join != NULL);
        crews(create, join);
    } else if (strcmp(way, "threads") == 0) {
        CHECK(pthread_create != NULL);
        crews(pthread_create, pthread_join);
    }
    printf("%s on glibc %s: %s, background thread %s\n", way, gnu_get_libc_version(),
           pthread_create == NULL ? "no libpthread" : "libpthread", background() ? "yes" : "no");
    return 0;
}
