/* The steps that tuning guides for jemalloc recommend, in their words: with jemalloc's header and
 * the names with je_. Takes one word:
 *   purge   all arenas are told, one by one, to return their free memory
 *   arena   a thread is bound to an arena of its own choice
 *   numa    a thread for each node, bound to its CPUs and to its own arena */
#define _GNU_SOURCE
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { MANY = 64, MIB = 1 << 20 };

/* Keeps all freed memory until the program purges it, as in every process of this test. */
const char *je_malloc_conf =
    "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:4,background_thread:false";

static size_t resident(void) {
    uint64_t epoch = 1;
    size_t bytes = 0, length = sizeof bytes;
    CHECK(je_mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
    CHECK(je_mallctl("stats.resident", &bytes, &length, NULL, 0) == 0);
    return bytes;
}

/* The number of the block's arena. */
static unsigned arena_of(void *block) {
    unsigned arena = 0;
    size_t length = sizeof arena;
    CHECK(je_mallctl("arenas.lookup", &arena, &length, &block, sizeof block) == 0);
    return arena;
}

static void purge_all_arenas(void) {
    unsigned narenas;
    size_t length = sizeof narenas;
    CHECK(je_mallctl("arenas.narenas", &narenas, &length, NULL, 0) == 0);
    for (unsigned i = 0; i < narenas; i++) {
        char name[64];
        snprintf(name, sizeof name, "arena.%u.purge", i);
        CHECK(je_mallctl(name, NULL, NULL, NULL, 0) == 0);
    }
}

static void show_purge(void) {
    static char *blocks[MANY];
    for (int i = 0; i < MANY; i++)
        memset(blocks[i] = je_malloc(MIB), 1, MIB);
    size_t full = resident();
    for (int i = 0; i < MANY; i++)
        je_free(blocks[i]);
    size_t freed = resident();
    purge_all_arenas();
    size_t purged = resident();
    printf("full %zu freed %zu purged %zu\n", full, freed, purged);
    CHECK(full >= (size_t)MANY * MIB && freed + 4 * MIB > full);
    CHECK(purged + (MANY - 8) * (size_t)MIB < full);
}

/* Binds the calling thread to the arena. */
static void use_arena(unsigned arena) {
    unsigned now = 0;
    size_t length = sizeof now;
    CHECK(je_mallctl("thread.arena", NULL, NULL, &arena, sizeof arena) == 0);
    CHECK(je_mallctl("thread.arena", &now, &length, NULL, 0) == 0);
    CHECK(now == arena);
}

static void *in_arena(void *argument) {
    unsigned arena = *(unsigned *)argument;
    use_arena(arena);
    for (size_t size = 8; size < 8 * (size_t)MIB; size *= 3) {
        void *block = je_malloc(size);
        CHECK(arena_of(block) == arena);
        je_free(block);
    }
    return NULL;
}

static void show_arena(void) {
    for (unsigned arena = 0; arena < 4; arena++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, in_arena, &arena) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    unsigned absent = 5000, now = 0, before = 0;
    size_t length = sizeof now;
    CHECK(je_mallctl("thread.arena", &before, &length, NULL, 0) == 0);
    CHECK(je_mallctl("thread.arena", NULL, NULL, &absent, sizeof absent) != 0);
    CHECK(je_mallctl("thread.arena", &now, &length, NULL, 0) == 0 && now == before);
    puts("arenas 4");
}

struct node {
    int number;
    unsigned arena;
    cpu_set_t cpus;
};

/* Reads the CPUs of a node from a list such as 0-3,8-11. False if there is no such node. */
static int read_node(int number, cpu_set_t *cpus) {
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", number);
    FILE *list = fopen(path, "r");
    if (list == NULL)
        return 0;
    CPU_ZERO(cpus);
    int first, last, read;
    while ((read = fscanf(list, "%d-%d", &first, &last)) > 0) {
        for (int cpu = first; cpu <= (read == 2 ? last : first); cpu++)
            CPU_SET(cpu, cpus);
        if (fgetc(list) != ',')
            break;
    }
    fclose(list);
    return CPU_COUNT(cpus) > 0;
}

static void *on_node(void *argument) {
    struct node *node = argument;
    /* In a container that hides a node's CPUs there is nothing to show. */
    if (sched_setaffinity(0, sizeof node->cpus, &node->cpus) != 0)
        return NULL;
    use_arena(node->arena);
    char *block = je_malloc(8 * MIB);
    CHECK(arena_of(block) == node->arena);
    memset(block, 1, 8 * MIB);
    /* The node of the pages, if the system reports it. */
    enum { PAGES = 16 };
    void *pages[PAGES];
    int where[PAGES];
    for (int i = 0; i < PAGES; i++)
        pages[i] = block + i * (MIB / 2);
    if (syscall(SYS_move_pages, 0, (unsigned long)PAGES, pages, NULL, where, 0) == 0) {
        for (int i = 0; i < PAGES; i++)
            CHECK(where[i] == node->number);
    }
    je_free(block);
    return NULL;
}

static void show_numa(void) {
    static struct node nodes[64];
    int count = 0;
    for (int number = 0; number < 64; number++) {
        struct node *node = &nodes[count];
        if (!read_node(number, &node->cpus))
            continue;
        node->number = number;
        size_t length = sizeof node->arena;
        CHECK(je_mallctl("arenas.create", &node->arena, &length, NULL, 0) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, on_node, node) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        count++;
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++)
            CHECK(nodes[i].arena != nodes[j].arena);
    }
    printf("nodes %d\n", count);
}

int main(int argc, char **argv) {
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "purge") == 0)
        show_purge();
    else if (strcmp(what, "arena") == 0)
        show_arena();
    else if (strcmp(what, "numa") == 0)
        show_numa();
    else
        return 2;
    return 0;
}
