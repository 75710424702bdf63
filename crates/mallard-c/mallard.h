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

#ifdef __cplusplus
}
#endif

#endif
