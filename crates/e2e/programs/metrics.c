/* Holds blocks of several sizes, is at rest, and prints the allocator's figures by each way that a
 * program has. Its metrics come last. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controls.h"
#include "malloc_more.h"

int mallctl(const char *, void *, size_t *, void *, size_t);
void malloc_stats_print(void (*)(void *, const char *), void *, const char *);

enum { SOME = 1000, LARGE = 4 };

static char text[1 << 16];
static size_t length;

static void keep(void *opaque, const char *piece) {
    CHECK(opaque == text);
    size_t more = strlen(piece);
    CHECK(length + more < sizeof text);
    memcpy(text + length, piece, more);
    length += more;
}

int main(void) {
    static void *blocks[SOME], *large[LARGE];
    setvbuf(stdout, NULL, _IOFBF, 0);
    for (int i = 0; i < SOME; i++)
        blocks[i] = malloc(100 + 3 * (i % 400));
    for (int i = 0; i < LARGE; i++)
        large[i] = malloc((size_t)(i + 1) << 20);
    for (int i = 0; i < SOME; i += 3)
        free(blocks[i]);
    free(large[0]);

    /* Gathered before anything is printed, which allocates, and once before, so that each finds its
     * records. */
    CHECK(SET(uint64_t, "epoch", 1) == 0);
    malloc_stats_print(keep, text, "P");
    length = 0;
    malloc_stats_print(keep, text, "JP");
    CHECK(SET(uint64_t, "epoch", 1) == 0);
#ifdef __GLIBC__
    size_t allocated_of_mallinfo = mallinfo2().uordblks;
#endif
    size_t allocated = GET(size_t, "stats.allocated"), active = GET(size_t, "stats.active");
    size_t resident = GET(size_t, "stats.resident"), metadata = GET(size_t, "stats.metadata");

#ifdef __GLIBC__
    printf("mallinfo2 %zu\n", allocated_of_mallinfo);
#endif
    printf("allocated %zu\nactive %zu\nresident %zu\nmetadata %zu\n", allocated, active, resident,
           metadata);
    fwrite(text, 1, length, stdout);
    return 0;
}
