/* mallard.h - Mallard, a general-purpose memory allocator for Linux.
 *
 * The functions of <stdlib.h> and <malloc.h> keep their declarations there; here is what those lack:
 * jemalloc's functions and names, which are Mallard's own interface too. Link with -lmallard, or run
 * any program with LD_PRELOAD=/path/to/libmallard.so. All functions may be called from any thread.
 * <jemalloc/jemalloc.h> has the same for programs written for jemalloc.
 *
 * Every function and variable below exists twice: as it is and with the prefix je_. */
#ifndef MALLARD_H
#define MALLARD_H

#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MALLARD_ATTRIBUTE(a) __attribute__(a)
#else
#define MALLARD_ATTRIBUTE(a)
#endif
/* Gives new memory, whose size the arguments of these numbers tell. */
#define MALLARD_NEW(...) MALLARD_ATTRIBUTE((nothrow, malloc, alloc_size(__VA_ARGS__)))
#define MALLARD_PLAIN MALLARD_ATTRIBUTE((nothrow))

/* A declaration with and without the prefix. */
#define MALLARD_BOTH(type, name, parameters, attributes) \
    extern type name parameters attributes;              \
    extern type je_##name parameters attributes

/* ---- Options and messages ---- */

/* Options of this program, "key:value,key:value". A program sets them by defining this symbol:
 *     const char *malloc_conf = "narenas:8,dirty_decay_ms:1000";
 * /etc/malloc.conf and the variables MALLOC_CONF and MALLARD_CONF win over it. je_malloc_conf is
 * read where malloc_conf is not set. */
extern const char *malloc_conf;
extern const char *je_malloc_conf;
/* The same, and wins over all of these but MALLARD_CONF. */
extern const char *malloc_conf_2_conf_harder;
extern const char *je_malloc_conf_2_conf_harder;

/* What every line that Mallard prints is given to, once it is set; else lines go to standard error.
 * The first argument is null here. It must not allocate memory. */
extern void (*malloc_message)(void *opaque, const char *text);
extern void (*je_malloc_message)(void *opaque, const char *text);

/* ---- C23 and older functions that <stdlib.h> may lack ---- */

/* C23. The size must be the one that malloc, calloc or realloc was asked for. */
void free_sized(void *block, size_t size);
/* C23. The alignment and size must be those that aligned_alloc was asked for. */
void free_aligned_sized(void *block, size_t alignment, size_t size);
/* realloc for count * size bytes; NULL and ENOMEM when the product overflows. */
void *reallocarray(void *block, size_t count, size_t size);
/* The old name of free. It has no form with the prefix. */
void cfree(void *block);

/* ---- Allocation with flags ----
 *
 * Flags are joined by |; 0 is for none. */

/* The block is aligned to 1 << la; the caller sees to it that la is 0 to 63. */
#define MALLOCX_LG_ALIGN(la) ((int)(la))
/* The block is aligned to a, a power of two. */
#define MALLOCX_ALIGN(a) ((int)__builtin_ctzll((unsigned long long)(a)))
/* New memory is zero, up to the usable size. Where a block grows, what lies beyond its old usable size. */
#define MALLOCX_ZERO ((int)0x40)
/* Through the cache that the control "tcache.create" gave this number; only one thread may use such
 * a cache at a time. */
#define MALLOCX_TCACHE(tc) ((int)(((tc) + 2) << 8))
/* Past all caches. */
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
/* From the arena of this number, and past the thread's own cache. */
#define MALLOCX_ARENA(a) ((int)(((unsigned)(a) + 1U) << 20))

/* In the place of an arena's number in the names of controls: all arenas; those destroyed, together. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

/* A block of at least size bytes. NULL when there is no memory, when size or alignment cannot be, and
 * when the arena does not exist. */
MALLARD_BOTH(void *, mallocx, (size_t size, int flags), MALLARD_NEW(1));
/* The block with its contents, now of at least size bytes, perhaps elsewhere. NULL when it cannot be
 * had; the block is then as it was. */
MALLARD_BOTH(void *, rallocx, (void *block, size_t size, int flags),
             MALLARD_ATTRIBUTE((nothrow, warn_unused_result, alloc_size(2))));
/* Resizes the block where it is, to size + extra bytes if that can be, else to size bytes. Gives its
 * usable size, which is below size if neither could be. */
MALLARD_BOTH(size_t, xallocx, (void *block, size_t size, size_t extra, int flags), MALLARD_PLAIN);
/* The usable size of the block. */
MALLARD_BOTH(size_t, sallocx, (const void *block, int flags), MALLARD_ATTRIBUTE((nothrow, pure)));
/* Frees the block. Of the flags only MALLOCX_TCACHE and MALLOCX_TCACHE_NONE matter. */
MALLARD_BOTH(void, dallocx, (void *block, int flags), MALLARD_PLAIN);
/* As dallocx, sooner done: size is at least what was asked for and at most the usable size, flags
 * have the alignment that was asked for. */
MALLARD_BOTH(void, sdallocx, (void *block, size_t size, int flags), MALLARD_PLAIN);
/* The usable size that mallocx would give; 0 if size or alignment cannot be. Allocates nothing. */
MALLARD_BOTH(size_t, nallocx, (size_t size, int flags), MALLARD_ATTRIBUTE((nothrow, pure)));

/* A block and its usable size. */
typedef struct {
    void *ptr;
    size_t size;
} smallocx_return_t;
/* As mallocx, and says the usable size at once. */
MALLARD_BOTH(smallocx_return_t, smallocx, (size_t size, int flags), MALLARD_PLAIN);

/* ---- Controls and statistics: the tree of names by which a program looks at the allocator and steers
 * it; docs/mallctl.md lists them, with their types. ---- */

/* Reads the value of name to oldp, where *oldlenp is its size, and writes the one at newp, of newlen
 * bytes; either or both may be null. 0, or:
 *   ENOENT  no such name, or nothing at that index      EPERM   the name is not read, or not written
 *   EINVAL  a value of the wrong size (as much of the   EFAULT  it could not be done
 *           old one as fits is at oldp, and its length  EAGAIN  memory ran out
 *           in *oldlenp), or one that cannot be
 * errno stays as it was. */
MALLARD_BOTH(int, mallctl, (const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen),
             MALLARD_PLAIN);
/* The name as numbers, for many look-ups of names that differ in a number: put it in its place in mibp.
 * *miblenp is the room in mibp, and then how much of it is used. */
MALLARD_BOTH(int, mallctlnametomib, (const char *name, size_t *mibp, size_t *miblenp), MALLARD_PLAIN);
/* As mallctl, by numbers. */
MALLARD_BOTH(int, mallctlbymib,
             (const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp, size_t newlen),
             MALLARD_PLAIN);
/* Writes a report through the function, or as messages where that is NULL. The letters of options leave
 * parts out; J has it as JSON. */
MALLARD_BOTH(void, malloc_stats_print,
             (void (*write)(void *opaque, const char *text), void *opaque, const char *options),
             MALLARD_PLAIN);

/* ---- Hooks: where an arena of the program's own gets its memory, by the control "arenas.create" or
 * "arena.<i>.extent_hooks". Those that give a bool say true when they refuse. ---- */

typedef struct extent_hooks_s extent_hooks_t;

/* Memory of size bytes at a multiple of alignment, at address if that is not NULL. Takes and gives in
 * *zero and *commit whether it is to be, or is, zero and committed. */
typedef void *(extent_alloc_t)(extent_hooks_t *hooks, void *address, size_t size, size_t alignment, bool *zero,
                               bool *commit, unsigned arena);
/* The memory may be given back to wherever it came from. */
typedef bool(extent_dalloc_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena);
/* The memory must be given back: the arena is being destroyed. */
typedef void(extent_destroy_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena);
/* The part of length bytes at offset gets memory behind it, or loses it. */
typedef bool(extent_commit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,
                              unsigned arena);
typedef bool(extent_decommit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,
                                unsigned arena);
/* The part's contents may go: at the system's leisure, or at once, and it reads as zeros then. */
typedef bool(extent_purge_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,
                             unsigned arena);
/* One stretch becomes two, of size_a and size_b bytes; two that touch become one. */
typedef bool(extent_split_t)(extent_hooks_t *hooks, void *address, size_t size, size_t size_a, size_t size_b,
                             bool committed, unsigned arena);
typedef bool(extent_merge_t)(extent_hooks_t *hooks, void *address_a, size_t size_a, void *address_b, size_t size_b,
                             bool committed, unsigned arena);

struct extent_hooks_s {
    extent_alloc_t *alloc;
    extent_dalloc_t *dalloc;
    extent_destroy_t *destroy;
    extent_commit_t *commit;
    extent_decommit_t *decommit;
    extent_purge_t *purge_lazy;
    extent_purge_t *purge_forced;
    extent_split_t *split;
    extent_merge_t *merge;
};

/* ---- The functions of <stdlib.h> and <malloc.h> with the prefix ---- */

#ifdef __cplusplus
#define MALLARD_STANDARD __THROW
#else
#define MALLARD_STANDARD
#endif
extern void *je_malloc(size_t size) MALLARD_STANDARD MALLARD_NEW(1);
extern void *je_calloc(size_t count, size_t size) MALLARD_STANDARD MALLARD_NEW(1, 2);
extern void *je_realloc(void *block, size_t size) MALLARD_STANDARD
    MALLARD_ATTRIBUTE((nothrow, warn_unused_result, alloc_size(2)));
extern void *je_reallocarray(void *block, size_t count, size_t size) MALLARD_STANDARD
    MALLARD_ATTRIBUTE((nothrow, warn_unused_result, alloc_size(2, 3)));
extern void je_free(void *block) MALLARD_STANDARD MALLARD_PLAIN;
extern void je_free_sized(void *block, size_t size) MALLARD_STANDARD MALLARD_PLAIN;
extern void je_free_aligned_sized(void *block, size_t alignment, size_t size) MALLARD_STANDARD MALLARD_PLAIN;
extern int je_posix_memalign(void **block, size_t alignment, size_t size) MALLARD_STANDARD
    MALLARD_ATTRIBUTE((nothrow, nonnull(1)));
extern void *je_aligned_alloc(size_t alignment, size_t size) MALLARD_STANDARD MALLARD_NEW(2);
extern void *je_memalign(size_t alignment, size_t size) MALLARD_STANDARD MALLARD_NEW(2);
extern void *je_valloc(size_t size) MALLARD_STANDARD MALLARD_NEW(1);
extern void *je_pvalloc(size_t size) MALLARD_STANDARD MALLARD_NEW(1);
extern size_t je_malloc_usable_size(void *block) MALLARD_STANDARD MALLARD_PLAIN;

#undef MALLARD_BOTH

#ifdef __cplusplus
}
#endif

#endif
