/* mallard.h - Mallard, a general-purpose memory allocator for Linux.
 *
 * <stdlib.h> and <malloc.h> declare the standard functions. This header declares the others:
 * jemalloc's functions and names, which are also Mallard's own interface. Link with -lmallard, or
 * run any program with LD_PRELOAD=/path/to/libmallard.so. All functions may be called from any
 * thread. Programs written for jemalloc can include <jemalloc/jemalloc.h> instead.
 *
 * Every function and variable below exists with and without the prefix je_. */
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
/* Returns new memory; the arguments with these numbers give its size. */
#define MALLARD_NEW(...) MALLARD_ATTRIBUTE((nothrow, malloc, alloc_size(__VA_ARGS__)))
#define MALLARD_PLAIN MALLARD_ATTRIBUTE((nothrow))

/* A declaration with and without the prefix. */
#define MALLARD_BOTH(type, name, parameters, attributes)                                           \
    extern type name parameters attributes;                                                        \
    extern type je_##name parameters attributes

/* ---- Options and messages ---- */

/* The program's options, "key:value,key:value". A program sets them by defining this symbol:
 *     const char *malloc_conf = "narenas:8,dirty_decay_ms:1000";
 * /etc/malloc.conf and the variables MALLOC_CONF and MALLARD_CONF take precedence over it. If
 * malloc_conf is not set, je_malloc_conf is read. */
extern const char *malloc_conf;
extern const char *je_malloc_conf;
/* The same, but takes precedence over all of the above except MALLARD_CONF. */
extern const char *malloc_conf_2_conf_harder;
extern const char *je_malloc_conf_2_conf_harder;

/* If set, receives every line that Mallard prints; otherwise lines go to standard error. Its first
 * argument is null. The function must not allocate memory. */
extern void (*malloc_message)(void *opaque, const char *text);
extern void (*je_malloc_message)(void *opaque, const char *text);

/* ---- C23 and older functions that <stdlib.h> may lack ---- */

/* C23. The size must be the one that was passed to malloc, calloc or realloc. */
void free_sized(void *block, size_t size);
/* C23. The alignment and size must be those that were passed to aligned_alloc. */
void free_aligned_sized(void *block, size_t alignment, size_t size);
/* realloc for count * size bytes; NULL and ENOMEM if the product overflows. */
void *reallocarray(void *block, size_t count, size_t size);
/* The old name of free. It does not exist with the prefix. */
void cfree(void *block);

/* ---- What an address lies in ----
 *
 * For any address, without a lock. Both do not exist with the prefix. Of a block of 128 MiB or more
 * only the first 2 MiB are known. */

/* Returns the bytes from there to the end of the block. With hardened:true, the block ends with the
 * requested size, and a free one has 0 bytes; otherwise it ends with its usable size, and a free
 * block counts as one in use. Returns SIZE_MAX for memory that is in no block of this library. */
size_t malloc_object_size(const void *address) MALLARD_PLAIN;
/* Returns the start of the block, NULL if the address is in none. */
void *malloc_object_base(const void *address) MALLARD_PLAIN;

/* ---- Allocation with flags ----
 *
 * Flags are combined with |; 0 means none. */

/* The block is aligned to 1 << la; la must be from 0 to 63. */
#define MALLOCX_LG_ALIGN(la) ((int)(la))
/* The block is aligned to a, which must be a power of two. */
#define MALLOCX_ALIGN(a) ((int)__builtin_ctzll((unsigned long long)(a)))
/* New memory is zero, up to the usable size. If a block grows, this applies to the part beyond its
 * old usable size. */
#define MALLOCX_ZERO ((int)0x40)
/* Uses the cache with this number, from the control "tcache.create". Only one thread at a time may
 * use such a cache. */
#define MALLOCX_TCACHE(tc) ((int)(((tc) + 2) << 8))
/* Bypasses all caches. */
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
/* Allocates from the arena with this number and bypasses the thread's cache. */
#define MALLOCX_ARENA(a) ((int)(((unsigned)(a) + 1U) << 20))

/* Instead of an arena's number in the names of controls: all arenas, and all destroyed arenas. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

/* Returns a block of at least size bytes. Returns NULL if there is no memory, if size or alignment
 * is impossible, and if the arena does not exist. */
MALLARD_BOTH(void *, mallocx, (size_t size, int flags), MALLARD_NEW(1));
/* Resizes the block to at least size bytes, keeps its contents, and returns its possibly new
 * address. On failure returns NULL and leaves the block unchanged. */
MALLARD_BOTH(void *, rallocx, (void *block, size_t size, int flags),
             MALLARD_ATTRIBUTE((nothrow, warn_unused_result, alloc_size(2))));
/* Resizes the block in place, to size + extra bytes if possible, otherwise to size bytes. Returns
 * its usable size, which is below size if neither was possible. */
MALLARD_BOTH(size_t, xallocx, (void *block, size_t size, size_t extra, int flags), MALLARD_PLAIN);
/* Returns the usable size of the block. */
MALLARD_BOTH(size_t, sallocx, (const void *block, int flags), MALLARD_ATTRIBUTE((nothrow, pure)));
/* Frees the block. The only flags with an effect are MALLOCX_TCACHE and MALLOCX_TCACHE_NONE. */
MALLARD_BOTH(void, dallocx, (void *block, int flags), MALLARD_PLAIN);
/* Like dallocx, but faster. The size must be from the requested size to the usable size, and the
 * flags must have the requested alignment. */
MALLARD_BOTH(void, sdallocx, (void *block, size_t size, int flags), MALLARD_PLAIN);
/* Returns the usable size of a block from mallocx with these arguments; 0 if size or alignment is
 * impossible. Allocates nothing. */
MALLARD_BOTH(size_t, nallocx, (size_t size, int flags), MALLARD_ATTRIBUTE((nothrow, pure)));

/* A block and its usable size. */
typedef struct {
    void *ptr;
    size_t size;
} smallocx_return_t;
/* Like mallocx, but also returns the usable size. */
MALLARD_BOTH(smallocx_return_t, smallocx, (size_t size, int flags), MALLARD_PLAIN);

/* ---- Controls and statistics ----
 *
 * A tree of names through which a program inspects and controls the allocator. docs/mallctl.md
 * lists the names with their types. */

/* Reads the value of name into oldp, where *oldlenp is its size, and writes the value at newp, of
 * newlen bytes. Either or both may be null. Returns 0, or:
 *   ENOENT  there is no such name, or nothing with that index
 *   EPERM   the name cannot be read, or cannot be written
 *   EINVAL  the size of a value is wrong (then as much of the old one as fits is at oldp, and that
 *           length in *oldlenp), or the new value is invalid
 *   EFAULT  the operation failed
 *   EAGAIN  memory ran out
 * errno does not change. */
MALLARD_BOTH(int, mallctl,
             (const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen),
             MALLARD_PLAIN);
/* Translates the name to numbers, for repeated look-ups of names that differ in one number: replace
 * that number in mibp. *miblenp is the length of mibp, and on return the length of the result. */
MALLARD_BOTH(int, mallctlnametomib, (const char *name, size_t *mibp, size_t *miblenp),
             MALLARD_PLAIN);
/* Like mallctl, but takes the numbers of a name. */
MALLARD_BOTH(int, mallctlbymib,
             (const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
              size_t newlen),
             MALLARD_PLAIN);
/* Writes a report through the function or, if that is NULL, as messages. The letters in options
 * omit parts of the report; J selects JSON. P selects metrics for Prometheus (OpenMetrics 1.0). */
MALLARD_BOTH(void, malloc_stats_print,
             (void (*write)(void *opaque, const char *text), void *opaque, const char *options),
             MALLARD_PLAIN);

/* ---- Heap profiles ----
 *
 * Short names for the controls of the profiler. docs/profiling.md tells how to read a profile. They
 * return 0, or what mallctl returns. */

/* Starts sampling in all threads. The process need not have been started with prof:true. */
static inline int mallard_profile_start(void) {
    bool on = true;
    return mallctl("prof.active", NULL, NULL, &on, sizeof on);
}
/* Stops sampling. What was sampled stays in profiles for as long as it is in use. */
static inline int mallard_profile_stop(void) {
    bool on = false;
    return mallctl("prof.active", NULL, NULL, &on, sizeof on);
}
/* Writes a profile to the file or, if that is NULL, to one whose name begins with the option
 * prof_prefix. EFAULT if that fails, after a line on standard error that says why. */
static inline int mallard_profile_dump(const char *file) {
    return mallctl("prof.dump", NULL, NULL, file == NULL ? NULL : &file,
                   file == NULL ? 0 : sizeof file);
}

/* ---- Hooks ----
 *
 * Hooks provide an arena's memory. They are set through the control "arenas.create" or
 * "arena.<i>.extent_hooks". Hooks that return bool return true if they refuse. */

typedef struct extent_hooks_s extent_hooks_t;

/* Returns memory of size bytes at a multiple of alignment, at address if that is not NULL. *zero
 * and *commit say whether it must be zero and committed, and on return whether it is. */
typedef void *(extent_alloc_t)(extent_hooks_t *hooks, void *address, size_t size, size_t alignment,
                               bool *zero, bool *commit, unsigned arena);
/* The memory may be returned to its source. */
typedef bool(extent_dalloc_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                              unsigned arena);
/* The memory must be returned, because the arena is being destroyed. */
typedef void(extent_destroy_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                               unsigned arena);
/* Commits or decommits the part of length bytes at offset. */
typedef bool(extent_commit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                              size_t length, unsigned arena);
typedef bool(extent_decommit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                                size_t length, unsigned arena);
/* Discards the part's contents: lazily, when the system needs memory, or at once, so that the part
 * reads as zeros. */
typedef bool(extent_purge_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                             size_t length, unsigned arena);
/* Splits an extent into two, of size_a and size_b bytes, or merges two adjacent extents. */
typedef bool(extent_split_t)(extent_hooks_t *hooks, void *address, size_t size, size_t size_a,
                             size_t size_b, bool committed, unsigned arena);
typedef bool(extent_merge_t)(extent_hooks_t *hooks, void *address_a, size_t size_a, void *address_b,
                             size_t size_b, bool committed, unsigned arena);

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

/* As the C library declares those without the prefix. */
#if defined(__cplusplus) && defined(__THROW)
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
extern void je_free_aligned_sized(void *block, size_t alignment,
                                  size_t size) MALLARD_STANDARD MALLARD_PLAIN;
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
