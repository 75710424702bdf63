/* What the system says of the process, read without the allocator, and the time. */
#ifndef MALLARD_E2E_MEASURED_H
#define MALLARD_E2E_MEASURED_H

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* The resident bytes of the process. */
static inline size_t resident(void) {
    char text[256], *second;
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const ssize_t length = read(file, text, sizeof text - 1);
    CHECK(length > 0);
    close(file);
    text[length] = 0;
    strtoul(text, &second, 10);
    return strtoul(second, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static inline long now_ns(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline long now_ms(void) { return now_ns() / 1000000; }

#endif
