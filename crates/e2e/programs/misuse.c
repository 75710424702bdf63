/* One misuse per sub-command. The program writes the address to standard output and then commits
 * the misuse. If it survives, it exits with 0, and the test fails.
 *
 * The thread cache accepts small blocks unchecked. It is flushed when the thread ends, and a trim
 * makes the allocator check the blocks that it keeps between caches and heap. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static void *volatile victim;

static void announce(void *address) {
    victim = address;
    printf("%p\n", address);
    fflush(stdout);
}

static void *free_once(void *address) {
    free(address);
    return NULL;
}

static void *free_twice(void *address) {
    free(address);
    free(address);
    return NULL;
}

static void in_thread(void *(*body)(void *), void *address) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, address) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static char static_bytes[4096] __attribute__((aligned(4096)));

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *name = arguments[1];
    free(malloc(100));
    if (strcmp(name, "foreign_static") == 0) {
        announce(static_bytes + 64);
        in_thread(free_once, victim);
    } else if (strcmp(name, "foreign_mapping") == 0) {
        announce(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        in_thread(free_once, victim);
    } else if (strcmp(name, "foreign_stack") == 0) {
        char bytes[256];
        announce(bytes);
        in_thread(free_once, victim);
    } else if (strcmp(name, "foreign_realloc") == 0) {
        announce(static_bytes + 128);
        victim = realloc(victim, 500);
    } else if (strcmp(name, "inside_small") == 0) {
        announce((char *)malloc(1000) + 16);
        in_thread(free_once, victim);
    } else if (strcmp(name, "inside_large") == 0) {
        announce((char *)malloc(1 << 20) + 8192);
        in_thread(free_once, victim);
    } else if (strcmp(name, "inside_huge") == 0) {
        announce((char *)malloc(64 << 20) + (5 << 20));
        in_thread(free_once, victim);
    } else if (strcmp(name, "usable_inside_large") == 0) {
        announce((char *)malloc(1 << 20) + 8192);
        CHECK(malloc_usable_size(victim) == 0);
    } else if (strcmp(name, "realloc_inside_large") == 0) {
        announce((char *)malloc(1 << 20) + 8192);
        CHECK(realloc(victim, 100) == NULL);
    } else if (strcmp(name, "double_cached_large") == 0) {
        announce(malloc(256 << 10));
        in_thread(free_twice, victim);
    } else if (strcmp(name, "double_small") == 0) {
        announce(malloc(200));
        in_thread(free_twice, victim);
    } else if (strcmp(name, "double_small_at_once") == 0) {
        announce(malloc(200));
        free_twice(victim);
        _exit(0);
    } else if (strcmp(name, "double_large") == 0) {
        announce(malloc(1 << 20));
        in_thread(free_twice, victim);
    } else if (strcmp(name, "double_across_threads") == 0) {
        announce(malloc(200));
        in_thread(free_once, victim);
        in_thread(free_once, victim);
    } else {
        fprintf(stderr, "misuse: no misuse named %s\n", name);
        return 2;
    }
    malloc_trim(0);
    return 0;
}
