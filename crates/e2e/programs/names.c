/* Reads lines `NAME ACCESS BYTES` and prints for each what the name of jemalloc's tree answers. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "check.h"

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

/* What a name answers to a read of the length that its type has, and to a write where it takes none. */
static void test_walk(void) {
    char name[256], access[8];
    size_t bytes;
    while (scanf("%255s %7s %zu", name, access, &bytes) == 3) {
        char room[256];
        memset(room, 0, sizeof room);
        size_t size = bytes;
        int answer;
        if (access[0] == 'r') {
            answer = mallctl(name, room, &size, NULL, 0);
            if (answer == 0 && access[1] != 'w') {
                answer = mallctl(name, NULL, NULL, room, bytes) == EPERM ? 0 : -1;
            }
        } else {
            /* It is there, and is not read. */
            answer = mallctl(name, room, &size, NULL, 0) == EPERM ? 0 : mallctl(name, room, &size, NULL, 0);
        }
        printf("%s %d %zu\n", name, answer, size);
    }
}

int main(void) {
    CHECK(mallctl != NULL);
    test_walk();
    return 0;
}
