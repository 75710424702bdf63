/* Making and using explicit arenas, and what the system says of the process's memory. */
#ifndef MALLARD_E2E_ARENAS_H
#define MALLARD_E2E_ARENAS_H

#include <jemalloc/jemalloc.h>

#include <stdint.h>
#include <string.h>

#include "check.h"

#define MB ((size_t)1 << 20)

static inline unsigned created(extent_hooks_t *hooks) {
    unsigned arena = ~0u;
    size_t len = sizeof arena;
    CHECK(mallctl("arenas.create", &arena, &len, hooks ? &hooks : NULL, hooks ? sizeof hooks : 0) ==
          0);
    return arena;
}

static inline int named(unsigned arena, const char *what, void *old, size_t *len, void *new,
                        size_t new_len) {
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", arena, what);
    return mallctl(name, old, len, new, new_len);
}

static inline int done(unsigned arena, const char *what) {
    return named(arena, what, NULL, NULL, NULL, 0);
}

static inline void *in(unsigned arena, size_t size) {
    return mallocx(size, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
}

/* A field of /proc/self/status in KiB. */
static inline long status(const char *field) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtol(line + strlen(field) + 1, NULL, 10);
    }
    fclose(file);
    return value;
}

/* Whether the mapping that contains p has this flag in smaps. */
static inline int mapped_with(void *p, const char *flag) {
    char line[512], spaced[16];
    int inside = 0, has = 0;
    snprintf(spaced, sizeof spaced, " %s", flag);
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        uintptr_t from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)p >= from && (uintptr_t)p < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            has = strstr(line, spaced) != NULL;
    }
    fclose(file);
    return has;
}

#endif
