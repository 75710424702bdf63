/* One misuse per sub-command. The program writes the address to standard output and then commits
 * the misuse. If it survives, it exits with 0, and the test fails.
 *
 * The thread cache compares a small block with the last two only. It is flushed when the thread
 * ends, and a trim makes the allocator check the blocks that it keeps between caches and heap. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "malloc_more.h"

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
    } else if (strcmp(name, "double_last") == 0) {
        announce(malloc(48));
        free_twice(victim);
    } else if (strcmp(name, "double_last_but_one") == 0) {
        void *other = malloc(48);
        announce(malloc(48));
        free(victim);
        free(other);
        free(victim);
    } else if (strcmp(name, "double_resized") == 0) {
        announce(malloc(48));
        free(victim);
        victim = realloc(victim, 500);
    } else if (strcmp(name, "unaligned") == 0) {
        announce((char *)malloc(48) + 9);
        free(victim);
    } else if (strcmp(name, "double_long") == 0) {
        announce(malloc(256 << 10));
        free_twice(victim);
    } else if (strcmp(name, "inside_long") == 0) {
        announce((char *)malloc(256 << 10) + 8);
        free(victim);
    } else if (strcmp(name, "double_nothing") == 0) {
        announce(malloc(0));
        CHECK(malloc_usable_size(victim) == 0);
        free_twice(victim);
    } else if (strcmp(name, "inside_nothing") == 0) {
        announce((char *)malloc(0) + 8);
        free(victim);
    } else if (strcmp(name, "touched_nothing") == 0) {
        announce(malloc(0));
        *(volatile char *)victim = 1;
        free(victim);
    } else if (strcmp(name, "larger") == 0) {
        void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
        announce(malloc(48));
        sized(victim, 49);
    } else if (strcmp(name, "larger_large") == 0) {
        void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
        announce(malloc(1 << 20));
        sized(victim, (1 << 20) + 1);
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
