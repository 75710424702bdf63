/* extended.c once more as C++: jemalloc's header is for both. */
#include "extended.c"
