/* Loads other objects by its own search path: see deepbind.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlopen_there(const char *file, int mode) {
    void *volatile handle = dlopen(file, mode); /* A tail call would hide the caller. */
    return handle;
}
void *dlmopen_there(const char *file, int mode) {
    void *volatile handle = dlmopen(LM_ID_BASE, file, mode);
    return handle;
}
