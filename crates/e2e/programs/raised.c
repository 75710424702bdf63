/* A program with the set-user-ID bit: says as what user it runs, and allocates a little. */
#include <pthread.h>
#include <string.h>

#include "check.h"

static void *work(void *unused) {
    for (size_t size = 1; size < 8 << 20; size = size * 2 + 1) {
        char *block = malloc(size);
        CHECK(block);
        memset(block, 1, size);
        free(block);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    work(NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    printf("%d\n", (int)geteuid());
}
