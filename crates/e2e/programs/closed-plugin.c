/* A plug-in with a private allocator: see closed.c. */
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) void work(void) {
    enum { BLOCKS = 500 };
    void *blocks[BLOCKS];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(100 + (size_t)i * 91);
            if (blocks[i] == NULL)
                abort();
            memset(blocks[i], 1, 64);
        }
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
}
