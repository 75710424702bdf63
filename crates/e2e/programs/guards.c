/* Misuses a guarded block, as the argument says. Guards are switched on here by default; with a
 * second argument, the environment has switched them on. */
#include "controls.h"
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int mallctl(const char *, void *, size_t *, void *, size_t);

enum { SIZE = 40 };

__attribute__((noinline)) static char *make(size_t size) { return malloc(size); }
__attribute__((noinline)) static void give(char *p) { free(p); }
__attribute__((noinline)) static void poke(volatile char *p, long at) { p[at] = 1; }
__attribute__((noinline)) static int peek(volatile char *p, long at) { return p[at]; }

/* A guarded block: its usable size is exact. */
static char *guarded(bool at_start) {
    for (int i = 0; i < 1000000; i++) {
        char *p = make(SIZE);
        bool is_at_start = (uintptr_t)p % sysconf(_SC_PAGESIZE) == 0;
        if (malloc_usable_size(p) == SIZE && is_at_start == at_start)
            return p;
        give(p);
    }
    puts("no guarded block");
    exit(3);
}

static void *free_it(void *p) {
    give(p);
    return NULL;
}

/* Every call that takes a block works with a guarded one. */
static void use(void) {
    char *p = guarded(false);
    memset(p, 7, SIZE);
    CHECK(malloc_usable_size(p) == SIZE);
    size_t open = GET(size_t, "experimental.guard.open_bytes");
    CHECK(open > 0 && open <= 1 << 20);
    p = realloc(p, 4000);
    for (int i = 0; i < SIZE; i++)
        CHECK(p[i] == 7);
    give(p);
    char *held[3000];
    for (int i = 0; i < 3000; i++) {
        void *aligned = NULL;
        CHECK(posix_memalign(&aligned, 64, 100 + i) == 0 && (uintptr_t)aligned % 64 == 0);
        held[i] = aligned;
        memset(held[i], 1, 100 + i);
        char *zeros = calloc(1, 200);
        for (int j = 0; j < 200; j++)
            CHECK(zeros[j] == 0);
        free(zeros);
    }
    CHECK(GET(size_t, "experimental.guard.open_bytes") <= 1 << 20);
    for (int i = 0; i < 3000; i++)
        free(held[i]);
    pid_t child = fork();
    if (child == 0) {
        give(guarded(false));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(SET(bool, "experimental.guard.active", false) == 0);
    CHECK(!GET(bool, "experimental.guard.active"));
    CHECK(GET(uint64_t, "experimental.guard.blocks") > 2);
    CHECK(GET(unsigned, "experimental.guard.findings") == 0);
    puts("all is well");
}

int main(int argc, char **argv) {
    const char *how = argv[1];
    if (argc < 3)
        CHECK(SET(bool, "experimental.guard.active", true) == 0);
    if (strcmp(how, "use") == 0) {
        use();
        return 0;
    }
    char *p = guarded(strcmp(how, "underflow") == 0);
    printf("%p\n", (void *)p);
    fflush(stdout);
    if (strcmp(how, "overflow") == 0)
        poke(p, SIZE + 8);
    else if (strcmp(how, "slack") == 0)
        poke(p, SIZE);
    else if (strcmp(how, "underflow") == 0)
        poke(p, -1);
    else if (strcmp(how, "foreign") == 0)
        poke(NULL, 16);
    else if (strcmp(how, "inner") == 0)
        p += 8;
    else if (strcmp(how, "double") == 0 || strcmp(how, "write") == 0 || strcmp(how, "read") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, free_it, p) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    if (strcmp(how, "write") == 0)
        poke(p, 8);
    else if (strcmp(how, "read") == 0)
        peek(p, 8);
    else
        give(p);
    puts("went on");
}
