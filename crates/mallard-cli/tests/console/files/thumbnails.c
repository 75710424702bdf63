// Decodes pictures, most of 400 KB and some of 40 MB, each into one buffer.
#include <stdlib.h>
#include <string.h>

int main(void) {
    for (int i = 0; i < 60; i++) {
        size_t size = i % 10 == 0 ? 40000000 : 400000;
        char *picture = (char *)malloc(size);
        if (!picture)
            return 1;
        memset(picture, i, size);
        free(picture);
    }
    return 0;
}
