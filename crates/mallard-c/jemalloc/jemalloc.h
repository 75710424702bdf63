/* jemalloc/jemalloc.h - Mallard for programs written for jemalloc: its interface by its names, with and
 * without the prefix je_, so that they compile unchanged. All declarations are in mallard.h, which is
 * installed one folder above; here are the macros besides that jemalloc's own header has. */
#ifndef MALLARD_JEMALLOC_H
#define MALLARD_JEMALLOC_H
/* What jemalloc's own header guards itself with: the two do not go together. */
#define JEMALLOC_H_

#include <strings.h>

#include "../mallard.h"

/* The release whose interface this is. */
#define JEMALLOC_VERSION "5.3.1-0-g0"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 1
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "0"

/* What jemalloc's header tells of its build. Names are never renamed here: both forms are functions of
 * their own, so JEMALLOC_MANGLE, JEMALLOC_NO_DEMANGLE and JEMALLOC_NO_RENAME change nothing. */
#define LG_SIZEOF_PTR 3
#define JEMALLOC_OVERRIDE_MEMALIGN
#define JEMALLOC_OVERRIDE_VALLOC
#define JEMALLOC_USABLE_SIZE_CONST
#define JEMALLOC_EXPERIMENTAL_SMALLOCX_API

#define JEMALLOC_HAVE_ATTR
#define JEMALLOC_HAVE_ATTR_ALLOC_SIZE
#define JEMALLOC_ATTR(a) MALLARD_ATTRIBUTE((a))
#define JEMALLOC_ALIGNED(n) MALLARD_ATTRIBUTE((aligned(n)))
#define JEMALLOC_ALLOC_SIZE(n) MALLARD_ATTRIBUTE((alloc_size(n)))
#define JEMALLOC_ALLOC_SIZE2(n, m) MALLARD_ATTRIBUTE((alloc_size(n, m)))
#define JEMALLOC_NOTHROW MALLARD_ATTRIBUTE((nothrow))
#define JEMALLOC_NOINLINE MALLARD_ATTRIBUTE((noinline))
#define JEMALLOC_COLD MALLARD_ATTRIBUTE((cold))
#define JEMALLOC_SECTION(s) MALLARD_ATTRIBUTE((section(s)))
#define JEMALLOC_FORMAT_ARG(n) MALLARD_ATTRIBUTE((format_arg(n)))
#define JEMALLOC_FORMAT_PRINTF(n, m) MALLARD_ATTRIBUTE((format(printf, n, m)))
#define JEMALLOC_RESTRICT_RETURN
#define JEMALLOC_ALLOCATOR
#ifndef JEMALLOC_EXPORT
#define JEMALLOC_EXPORT MALLARD_ATTRIBUTE((visibility("default")))
#endif
#define JEMALLOC_CXX_THROW MALLARD_STANDARD
#define JEMALLOC_SYS_NOTHROW JEMALLOC_NOTHROW

#endif
