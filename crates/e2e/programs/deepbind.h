/* The interface between the program deepbind.c and its module. */
#ifndef DEEPBIND_H
#define DEEPBIND_H
#include <stddef.h>

/* Ways to get a block. */
enum way {
    MALLOC,
    CALLOC,
    REALLOC,
    REALLOCARRAY,
    POSIX_MEMALIGN,
    ALIGNED_ALLOC,
    MEMALIGN,
    STRDUP,
    GETLINE,
    ASPRINTF,
    WAYS
};

#define LINE "a line that is long enough for a block of its own"

struct module {
    char *(*make)(enum way way, const char *file); /* A block that holds LINE. */
    void (*take)(char *block);
    char *(*grow)(char *block, size_t size);
    size_t (*usable)(char *block);
    void *(*make_buffer)(size_t size); /* `operator new`, and */
    void (*take_buffer)(void *buffer); /* `operator delete`. */
    int (*own)(void);                  /* Work without passing blocks; 0 on success. */
};
#endif
