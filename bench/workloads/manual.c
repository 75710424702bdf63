/* manual: a program with an arena for each of its objects, through jemalloc's interface. All arenas
 * are created, each gets some blocks, and all are destroyed with their blocks.
 *
 *     arenas   (4000)    blocks   in each (20)    min, max   log-uniform sizes (16, 4096)
 *
 * The end state is when all arenas are destroyed. Allocators without arenas to create fail. */
#include "distribution.h"
#include "memory.h"

enum { ARENAS, BLOCKS, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"arenas", 4000, 1, 4000},
    {"blocks", 20, 1, 1 << 20},
    {"min", 16, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 4096, LEAST_BLOCK, UINT32_MAX / 2},
};

int mallctl(const char *name, void *old, size_t *old_length, void *value, size_t length);
void *mallocx(size_t size, int flags);
#pragma weak mallctl
#pragma weak mallocx

static int flags_of(unsigned arena) {
    const int arena_shift = 20, no_cache = 1 << 8;
    return (int)((arena + 1) << arena_shift) | no_cache;
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    if (!mallctl || !mallocx)
        fail("no arenas to create", "this allocator has no mallctl");
    const uint64_t count = params[ARENAS].value, blocks = params[BLOCKS].value;
    unsigned *arenas = (unsigned *)map_memory(count * sizeof(unsigned));
    uint64_t state = random_seed(0);
    const double start = now();
    for (uint64_t i = 0; i < count; i++) {
        size_t length = sizeof(unsigned);
        const int error = mallctl("arenas.create", &arenas[i], &length, NULL, 0);
        if (error)
            fail("arenas.create", strerror(error));
    }
    for (uint64_t block = 0; block < blocks; block++)
        for (uint64_t i = 0; i < count; i++) {
            const size_t size = random_log(&state, params[MIN].value, params[MAX].value);
            stamp(must(mallocx(size, flags_of(arenas[i]))), size);
        }
    note_huge();
    for (uint64_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "arena.%u.destroy", arenas[i]);
        const int error = mallctl(name, NULL, NULL, NULL, 0);
        if (error)
            fail(name, strerror(error));
    }
    const double seconds = now() - start;
    unmap_memory(arenas, count * sizeof(unsigned));
    print_all(seconds, count * blocks);
    return 0;
}
