/* The checks of the test programs. A failed one prints its place and condition and ends the program
 * at once. Nothing here allocates, because the allocator is under test. */
#ifndef MALLARD_E2E_CHECK_H
#define MALLARD_E2E_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(STDERR_FILENO, "CHECK failed: %s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

/* Whether an emulator runs the program. What the system then shows of the process, its mappings and
 * threads, is the emulator's. */
static inline int is_emulated(void) { return getenv("E2E_EMULATED") != NULL; }

#endif
