/* Forks in a hook that provides an arena's memory. Both parent and child continue from there. */
#define _GNU_SOURCE
#include "provided.h"
#include <string.h>
#include <pthread.h>
#include <sys/wait.h>

static bool armed, in_child;
static pthread_barrier_t begun;

static void meanwhile(void) {
    if (!armed)
        return;
    armed = false;
    pid_t pid = fork();
    CHECK(pid >= 0);
    free(malloc(100000));
    if (pid > 0) {
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    } else {
        in_child = true;
    }
}

static void before(void) { free(malloc(200000)); }

/* The thread's cache has distinct blocks, before and after. */
static void check_cache(void) {
    enum { N = 2000 };
    static void *blocks[N];
    for (int i = 0; i < N; i++) {
        blocks[i] = malloc(16 + i % 300);
        memset(blocks[i], i, 16);
    }
    for (int i = 0; i < N; i++)
        CHECK(((unsigned char *)blocks[i])[0] == (unsigned char)i &&
              ((unsigned char *)blocks[i])[15] == (unsigned char)i);
    for (int i = 0; i < N; i++)
        free(blocks[i]);
}

static void *idle(void *unused) {
    free(malloc(10));
    pthread_barrier_wait(&begun);
    pause();
    return unused;
}

int main(int argc, char **argv) {
    (void)argv;
    alarm(180);
    pthread_atfork(before, before, before);
    if (argc > 1) {
        pthread_t thread;
        CHECK(pthread_barrier_init(&begun, 0, 2) == 0);
        CHECK(pthread_create(&thread, 0, idle, 0) == 0);
        pthread_barrier_wait(&begun);
    }
    const unsigned arena = provided_arena();
    for (int i = 0; i < 5 && !in_child; i++) {
        check_cache();
        armed = true;
        /* More than the arena ever holds, so that it calls the hook. */
        for (int k = 0; armed && k < 1000; k++) {
            char *p = mallocx(3 << 20, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
            CHECK(p);
            memset(p, 1, 1000);
        }
        CHECK(!armed);
        check_cache();
        char *q = mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
        CHECK(q);
        dallocx(q, MALLOCX_TCACHE_NONE);
        unsigned number;
        size_t room = sizeof number;
        CHECK(mallctl("thread.arena", &number, &room, 0, 0) == 0);
    }
    if (in_child) {
        /* Long enough for anything wrongly taken for other threads' memory to be returned. */
        for (int i = 0; i < 100; i++)
            check_cache();
        exit(0);
    }
    puts("hooks ok");
    return 0;
}
