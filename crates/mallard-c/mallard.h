/* mallard.h - Mallard, a general-purpose memory allocator for Linux.
 *
 * The functions of <stdlib.h> and <malloc.h> keep their declarations there: a program needs this
 * header only for what those may lack. Link with -lmallard, or run any program with
 * LD_PRELOAD=/path/to/libmallard.so. All functions may be called from any thread. */
#ifndef MALLARD_H
#define MALLARD_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <malloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of this program, "key:value,key:value". A program sets them by defining this symbol:
 *     const char *malloc_conf = "narenas:8,dirty_decay_ms:1000";
 * /etc/malloc.conf and the variables MALLOC_CONF and MALLARD_CONF win over it. */
extern const char *malloc_conf;

/* C23. The size must be the one that malloc, calloc or realloc was asked for. */
void free_sized(void *block, size_t size);
/* C23. The alignment and size must be those that aligned_alloc was asked for. */
void free_aligned_sized(void *block, size_t alignment, size_t size);
/* realloc for count * size bytes; NULL and ENOMEM when the product overflows. */
void *reallocarray(void *block, size_t count, size_t size);
/* The old name of free. */
void cfree(void *block);

/* The tree of names by which a program looks at the allocator and steers it; docs/mallctl.md lists them,
 * with their types. Reads the value of name to oldp, where *oldlenp is its size, and writes the one at
 * newp, of newlen bytes; either or both may be null. 0, or:
 *   ENOENT  no such name, or nothing at that index      EPERM   the name is not read, or not written
 *   EINVAL  a value of the wrong size (as much of the   EFAULT  it could not be done
 *           old one as fits is at oldp, and its length  EAGAIN  memory ran out
 *           in *oldlenp), or one that cannot be
 * errno stays as it was. */
int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
/* The name as numbers, for many look-ups of names that differ in a number: put it in its place in mibp.
 * *miblenp is the room in mibp, and then how much of it is used. */
int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp);
/* As mallctl, by numbers. */
int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
/* The same by jemalloc's prefix. */
int je_mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int je_mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp);
int je_mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
/* In the place of an arena's number: all arenas, or those that were destroyed. */
#ifndef MALLCTL_ARENAS_ALL
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097
#endif

#ifdef __cplusplus
}
#endif

#endif
