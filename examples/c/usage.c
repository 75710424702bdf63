/* Compares the memory that the program allocates with the memory that is resident. Sets its own
 * options, allocates zeroed and aligned blocks, reads statistics and frees everything.
 *
 *   cc usage.c $(pkg-config --cflags --libs mallard) -o usage
 *   cc -static usage.c $(pkg-config --static --cflags --libs mallard) -o usage */
#include <mallard.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 1000, SIZE = 40000 };

const char *malloc_conf = "narenas:3,dirty_decay_ms:60000";

/* Reads a control, or ends the program. */
static void read_control(const char *name, void *value, size_t length) {
    int error = mallctl(name, value, &length, NULL, 0);
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", name, strerror(error));
        exit(1);
    }
}

static void report(const char *when) {
    /* Statistics are only updated by a new epoch. */
    uint64_t epoch = 1;
    size_t allocated, resident;
    mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
    read_control("stats.allocated", &allocated, sizeof allocated);
    read_control("stats.resident", &resident, sizeof resident);
    printf("%s: allocated %zu resident %zu\n", when, allocated, resident);
}

int main(void) {
    static char *blocks[BLOCKS];
    const char *version;
    unsigned narenas;
    read_control("version", &version, sizeof version);
    read_control("opt.narenas", &narenas, sizeof narenas);
    printf("version %s, %u arenas\n", version, narenas);

    report("before");
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = mallocx(SIZE, MALLOCX_ALIGN(4096) | MALLOCX_ZERO);
        if (blocks[i] == NULL || (uintptr_t)blocks[i] % 4096 != 0 || blocks[i][SIZE - 1] != 0)
            return 1;
        memset(blocks[i], 'x', SIZE);
    }
    report("during");
    for (int i = 0; i < BLOCKS; i++)
        sdallocx(blocks[i], SIZE, MALLOCX_ALIGN(4096));
    report("freed");
    /* Freed memory is returned later, or immediately, as here. MALLCTL_ARENAS_ALL is 4096. */
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
    report("purged");
    return 0;
}
