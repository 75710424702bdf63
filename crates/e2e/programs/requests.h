/* The ways to request memory, for requests.c. A way that glibc lacks is its nearest of those that
 * glibc has, where glibc serves the program: so both give the same verdict on a size. */
#ifndef MALLARD_E2E_REQUESTS_H
#define MALLARD_E2E_REQUESTS_H

#include <jemalloc/jemalloc.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "malloc_more.h"

#ifdef __cplusplus
#include <new>
#endif

/* There is no allocator with these where glibc serves the program. */
#pragma weak mallocx
#pragma weak rallocx
#pragma weak xallocx
#pragma weak sallocx
#pragma weak dallocx
#pragma weak mallctl

static int is_mallard(void) { return &mallocx != NULL; }

enum {
    ZEROED = 1,     /* the memory is zero */
    SETS_ERRNO = 2, /* a refusal sets errno to ENOMEM */
    RESIZED = 4,    /* the bytes of a shorter block come first */
};

typedef struct {
    const char *name;
    /* Null after a refusal; `refusal` then has the error number. */
    void *(*take)(size_t size, size_t alignment);
    void (*give)(void *block, size_t alignment);
    int flags;
} Way;

static int refusal;

static void *answer(void *block) {
    if (block == NULL)
        refusal = errno;
    return block;
}

/* mallocx and its kin leave errno alone, and have one reason to refuse these requests. */
static void *answer_x(void *block) {
    if (block == NULL)
        refusal = ENOMEM;
    return block;
}

static void give_free(void *block, size_t alignment) {
    (void)alignment;
    free(block);
}

/* ---- C ---- */

static void *take_malloc(size_t size, size_t alignment) {
    (void)alignment;
    return answer(malloc(size));
}

static void *take_calloc(size_t size, size_t alignment) {
    (void)alignment;
    return answer(calloc(1, size));
}

static void *take_calloc_many(size_t size, size_t alignment) {
    (void)alignment;
    return answer(size % 64 == 0 ? calloc(size / 64, 64) : calloc(size, 1));
}

static void *take_realloc_null(size_t size, size_t alignment) {
    (void)alignment;
    return answer(realloc(NULL, size));
}

/* A filled block to grow. */
enum { SMALL = 100, MIDDLE = 300000 };

static char *filled(char *block, size_t size) {
    CHECK(block != NULL);
    memset(block, 'k', size);
    return block;
}

static void is_filled(const char *block, size_t size) {
    for (size_t i = 0; i < size; i++)
        CHECK(block[i] == 'k');
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void *take_realloc_small(size_t size, size_t alignment) {
    (void)alignment;
    char *small = filled((char *)malloc(SMALL), SMALL);
    char *block = (char *)answer(realloc(small, size));
    if (block != NULL) {
        is_filled(block, smaller(size, SMALL));
    } else {
        is_filled(small, SMALL);
        free(small);
    }
    return block;
}

static void *take_realloc_middle(size_t size, size_t alignment) {
    (void)alignment;
    char *middle = filled((char *)malloc(MIDDLE), MIDDLE);
    char *block = (char *)answer(realloc(middle, size));
    if (block != NULL) {
        is_filled(block, smaller(size, MIDDLE));
    } else {
        is_filled(middle, MIDDLE);
        free(middle);
    }
    return block;
}

static void *take_reallocarray(size_t size, size_t alignment) {
    (void)alignment;
    return answer(size % 16 == 0 ? reallocarray(NULL, 16, size / 16) : reallocarray(NULL, 1, size));
}

static void *take_aligned_alloc(size_t size, size_t alignment) {
    return answer(aligned_alloc(alignment, size));
}

static void *take_posix_memalign(size_t size, size_t alignment) {
    void *block = &refusal;
    const int before = errno, error = posix_memalign(&block, alignment, size);
    if (error == 0)
        return block;
    CHECK(block == &refusal);
    CHECK(!is_mallard() || errno == before);
    refusal = error;
    return NULL;
}

static void *take_memalign(size_t size, size_t alignment) {
    return answer(memalign(alignment, size));
}

static void *take_valloc(size_t size, size_t alignment) {
    (void)alignment;
    return answer(valloc(size));
}

static void *take_pvalloc(size_t size, size_t alignment) {
    (void)alignment;
    return answer(pvalloc(size));
}

/* ---- jemalloc's ---- */

static void give_dallocx(void *block, size_t alignment) {
    if (is_mallard())
        dallocx(block, alignment ? MALLOCX_ALIGN(alignment) : 0);
    else
        free(block);
}

static void *take_mallocx(size_t size, size_t alignment) {
    if (!is_mallard())
        return answer_x(alignment ? memalign(alignment, size) : malloc(size));
    return answer_x(mallocx(size, alignment ? MALLOCX_ALIGN(alignment) : 0));
}

static void *take_mallocx_zero(size_t size, size_t alignment) {
    if (!is_mallard()) {
        void *block = answer_x(alignment ? memalign(alignment, size) : malloc(size));
        if (block != NULL)
            memset(block, 0, smaller(size, 4096));
        if (block != NULL && size > 4096)
            memset((char *)block + size - 4096, 0, 4096);
        return block;
    }
    return answer_x(mallocx(size, MALLOCX_ZERO | (alignment ? MALLOCX_ALIGN(alignment) : 0)));
}

static void *take_rallocx(size_t size, size_t alignment) {
    if (!is_mallard())
        return take_realloc_small(size, alignment);
    char *small = filled((char *)mallocx(SMALL, 0), SMALL);
    char *block = (char *)answer_x(rallocx(small, size, 0));
    if (block != NULL) {
        is_filled(block, smaller(size, SMALL));
    } else {
        is_filled(small, SMALL);
        dallocx(small, 0);
    }
    return block;
}

/* Grows in place, or not at all. Both as the size and as the bytes beyond it. */
static void *take_xallocx(size_t size, size_t alignment) {
    if (!is_mallard())
        return take_realloc_middle(size, alignment);
    char *middle = filled((char *)mallocx(MIDDLE, 0), MIDDLE);
    const size_t most = size > SIZE_MAX - MIDDLE ? SIZE_MAX - MIDDLE : size;
    CHECK(xallocx(middle, MIDDLE, most, 0) == sallocx(middle, 0));
    CHECK(sallocx(middle, 0) >= MIDDLE);
    const size_t usable = xallocx(middle, size, 0, 0);
    CHECK(usable == sallocx(middle, 0));
    is_filled(middle, smaller(usable, MIDDLE));
    if (usable >= size)
        return middle;
    dallocx(middle, 0);
    return answer_x(NULL);
}

static void *take_in(unsigned arena, size_t size, size_t alignment) {
    const int where = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    return answer_x(mallocx(size, where | (alignment ? MALLOCX_ALIGN(alignment) : 0)));
}

static unsigned arena_with(extent_hooks_t *hooks) {
    unsigned arena = ~0u;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.create", &arena, &length, hooks ? &hooks : NULL,
                  hooks ? sizeof hooks : 0) == 0);
    return arena;
}

static void *take_arena(size_t size, size_t alignment) {
    static unsigned arena = ~0u;
    if (!is_mallard())
        return take_mallocx(size, alignment);
    if (arena == ~0u)
        arena = arena_with(NULL);
    return take_in(arena, size, alignment);
}

/* Hooks that map what they are asked for, as the C library would. */
static void *hook_alloc(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero,
                        bool *commit, unsigned arena) {
    (void)hooks, (void)arena;
    if (at != NULL || size > SIZE_MAX - alignment)
        return NULL;
    const size_t length = alignment > 4096 ? size + alignment : size;
    char *map =
        (char *)mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    char *extent = (char *)(((uintptr_t)map + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (length > size) {
        if (extent > map)
            munmap(map, (size_t)(extent - map));
        if (extent + size < map + length)
            munmap(extent + size, (size_t)(map + length - extent - size));
    }
    *zero = *commit = true;
    return extent;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *at, size_t size, bool committed,
                        unsigned arena) {
    (void)hooks, (void)committed, (void)arena;
    return munmap(at, size) != 0;
}

static void hook_destroy(extent_hooks_t *hooks, void *at, size_t size, bool committed,
                         unsigned arena) {
    hook_dalloc(hooks, at, size, committed, arena);
}

static bool hook_split(extent_hooks_t *hooks, void *at, size_t size, size_t a, size_t b,
                       bool committed, unsigned arena) {
    (void)hooks, (void)at, (void)size, (void)a, (void)b, (void)committed, (void)arena;
    return false;
}

static bool hook_merge(extent_hooks_t *hooks, void *a, size_t size_a, void *b, size_t size_b,
                       bool committed, unsigned arena) {
    (void)hooks, (void)a, (void)size_a, (void)b, (void)size_b, (void)committed, (void)arena;
    return false;
}

static extent_hooks_t *mapping_hooks(void) {
    static extent_hooks_t hooks;
    hooks.alloc = hook_alloc;
    hooks.dalloc = hook_dalloc;
    hooks.destroy = hook_destroy;
    hooks.split = hook_split;
    hooks.merge = hook_merge;
    return &hooks;
}

static void *take_hooked(size_t size, size_t alignment) {
    static unsigned arena = ~0u;
    if (!is_mallard())
        return take_mallocx(size, alignment);
    if (arena == ~0u)
        arena = arena_with(mapping_hooks());
    return take_in(arena, size, alignment);
}

/* ---- C++ ----
 *
 * The forms that give null are also there for a program in C, so that one can be its first request:
 * the C++ runtime requests memory at its start. */
#ifndef __cplusplus
extern void *_ZnwmRKSt9nothrow_t(size_t, const void *) __attribute__((weak));
extern void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t, size_t, const void *) __attribute__((weak));
extern void _ZdlPv(void *) __attribute__((weak));
extern void _ZdaPvSt11align_val_t(void *, size_t) __attribute__((weak));

static void *take_new_nothrow(size_t size, size_t alignment) {
    (void)alignment;
    const char nothrow = 0;
    return answer_x(is_mallard() ? _ZnwmRKSt9nothrow_t(size, &nothrow) : malloc(size));
}

static void *take_new_aligned_nothrow(size_t size, size_t alignment) {
    const char nothrow = 0;
    return answer_x(is_mallard() ? _ZnamSt11align_val_tRKSt9nothrow_t(size, alignment, &nothrow)
                                 : memalign(alignment, size));
}

static void give_delete(void *block, size_t alignment) {
    if (!is_mallard())
        free(block);
    else if (alignment)
        _ZdaPvSt11align_val_t(block, alignment);
    else
        _ZdlPv(block);
}
#else
static int handler_calls;

static void handler(void) {
    handler_calls++;
    std::set_new_handler(nullptr);
}

/* A refusal calls the handler once, since that gives up, and throws std::bad_alloc. */
template <class Take> static void *thrown(Take take) {
    handler_calls = 0;
    std::set_new_handler(handler);
    void *block;
    try {
        block = take();
        CHECK(block != NULL && handler_calls == 0);
    } catch (const std::bad_alloc &) {
        CHECK(handler_calls == 1);
        block = answer_x(NULL);
    }
    std::set_new_handler(nullptr);
    return block;
}

static void *take_new(size_t size, size_t) {
    return thrown([=] { return ::operator new(size); });
}

static void *take_new_array(size_t size, size_t) {
    return thrown([=] { return ::operator new[](size); });
}

/* libstdc++ 12 rounds such a size up to zero. */
static int is_lost(size_t size, size_t alignment) {
    return !is_mallard() && size > SIZE_MAX - alignment;
}

static void *take_new_aligned(size_t size, size_t alignment) {
    if (is_lost(size, alignment))
        return answer_x(NULL);
    return thrown([=] { return ::operator new(size, std::align_val_t(alignment)); });
}

static void *take_new_nothrow(size_t size, size_t) {
    return answer_x(::operator new(size, std::nothrow));
}

static void *take_new_aligned_nothrow(size_t size, size_t alignment) {
    if (is_lost(size, alignment))
        return answer_x(NULL);
    return answer_x(::operator new[](size, std::align_val_t(alignment), std::nothrow));
}

static void give_delete(void *block, size_t alignment) {
    if (alignment)
        ::operator delete(block, std::align_val_t(alignment));
    else
        ::operator delete(block);
}
#endif

static const Way ways[] = {
    {"malloc", take_malloc, give_free, SETS_ERRNO},
    {"calloc", take_calloc, give_free, SETS_ERRNO | ZEROED},
    {"calloc_many", take_calloc_many, give_free, SETS_ERRNO | ZEROED},
    {"realloc_null", take_realloc_null, give_free, SETS_ERRNO},
    {"realloc_small", take_realloc_small, give_free, SETS_ERRNO | RESIZED},
    {"realloc_middle", take_realloc_middle, give_free, SETS_ERRNO | RESIZED},
    {"reallocarray", take_reallocarray, give_free, SETS_ERRNO},
    {"aligned_alloc", take_aligned_alloc, give_free, SETS_ERRNO},
    {"posix_memalign", take_posix_memalign, give_free, 0},
    {"memalign", take_memalign, give_free, SETS_ERRNO},
    {"valloc", take_valloc, give_free, SETS_ERRNO},
    {"pvalloc", take_pvalloc, give_free, SETS_ERRNO},
    {"mallocx", take_mallocx, give_dallocx, 0},
    {"mallocx_zero", take_mallocx_zero, give_dallocx, ZEROED},
    {"rallocx", take_rallocx, give_dallocx, RESIZED},
    {"xallocx", take_xallocx, give_dallocx, RESIZED},
    {"arena", take_arena, give_dallocx, 0},
    {"hooked", take_hooked, give_dallocx, 0},
    {"new_nothrow", take_new_nothrow, give_delete, 0},
    {"new_aligned_nothrow", take_new_aligned_nothrow, give_delete, 0},
#ifdef __cplusplus
    {"new", take_new, give_delete, 0},
    {"new_array", take_new_array, give_delete, 0},
    {"new_aligned", take_new_aligned, give_delete, 0},
#endif
};

#endif
