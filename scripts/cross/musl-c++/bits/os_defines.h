/* What libstdc++ must know of a system with musl. */
#pragma once
/* The functions of threads are in the C library itself. */
#define _GLIBCXX_GTHREAD_USE_WEAK 0
