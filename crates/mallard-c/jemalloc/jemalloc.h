/* jemalloc/jemalloc.h - Mallard for programs written for jemalloc: jemalloc's interface under its
 * own names, with and without the prefix je_, so that these programs compile unchanged. mallard.h,
 * installed one folder above, has all declarations. This header adds the macros of jemalloc's. */
#ifndef MALLARD_JEMALLOC_H
#define MALLARD_JEMALLOC_H
/* The include guard of jemalloc's own header, because a file cannot use both. */
#define JEMALLOC_H_

#include <strings.h>

#include "../mallard.h"

/* The release whose interface this header has. */
#define JEMALLOC_VERSION "5.3.1-0-g0"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 1
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "0"

/* The macros with which jemalloc's header describes its build. Nothing is renamed here: both forms
 * of each function exist, so JEMALLOC_MANGLE, JEMALLOC_NO_DEMANGLE and JEMALLOC_NO_RENAME have no
 * effect. */
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
