/* A clock that stands still and allocates, as libraries that shift a program's time do. If the
 * allocator read its time here, it would call itself, and nothing would ever decay. */
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __thread int depth;
    (void)clock;
    if (depth++ > 0)
        abort();
    void *volatile block = malloc(5000);
    free(block);
    depth--;
    *now = (struct timespec){1000000000, 0};
    return 0;
}
