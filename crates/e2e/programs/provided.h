/* An extent hook that provides an arena's memory from the system. */
#ifndef MALLARD_E2E_PROVIDED_H
#define MALLARD_E2E_PROVIDED_H

#include <mallard.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "check.h"

/* What the program does while the allocator waits for memory. */
static void meanwhile(void);

static void *provide(extent_hooks_t *hooks, void *wanted, size_t size, size_t align, bool *zero,
                     bool *commit, unsigned arena) {
    (void)hooks, (void)arena;
    if (wanted)
        return 0;
    char *at = mmap(0, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    *zero = *commit = true;
    meanwhile();
    return (void *)(((size_t)at + align - 1) & ~(align - 1));
}

/* A new arena with memory from there. */
static unsigned provided_arena(void) {
    static extent_hooks_t hooks = {.alloc = provide};
    extent_hooks_t *table = &hooks;
    unsigned arena;
    size_t len = sizeof arena;
    CHECK(mallctl("arenas.create", &arena, &len, &table, sizeof table) == 0);
    return arena;
}

#endif
