/* <malloc.h>, with the functions of glibc's that Mallard also has where the C library does not. On
 * such a system's own allocator they do nothing, or what comes nearest. */
#ifndef MALLARD_E2E_MALLOC_MORE_H
#define MALLARD_E2E_MALLOC_MORE_H

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#ifndef __GLIBC__
#ifdef __cplusplus
extern "C" {
#endif
extern int malloc_trim(size_t) __attribute__((weak));
extern void malloc_stats(void) __attribute__((weak));
extern void *pvalloc(size_t) __attribute__((weak));
#ifdef __cplusplus
}
#endif

static inline int trim_if_possible(size_t pad) { return malloc_trim ? malloc_trim(pad) : 0; }

static inline void stats_if_possible(void) {
    if (malloc_stats)
        malloc_stats();
}

static inline void *pvalloc_if_possible(size_t size) {
    return pvalloc ? pvalloc(size)
                   : valloc(size > SIZE_MAX - 4095 ? size : (size + 4095) & ~(size_t)4095);
}
#define malloc_trim trim_if_possible
#define malloc_stats stats_if_possible
#define pvalloc pvalloc_if_possible
#endif

#endif
