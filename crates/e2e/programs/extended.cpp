/* Compiles extended.c as C++, which jemalloc's header supports as well. */
#include "extended.c"
