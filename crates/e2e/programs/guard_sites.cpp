// Blocks from a few call sites. `find SITE` writes behind a block of a site; `count` says how many
// blocks of each were guarded; `inner` and `twice` misuse a plain block.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <string>

enum { SIZE = 40, COUNT = 50 };

#define APART __attribute__((noinline))
// What follows the call keeps it from being a jump.
#define DONE asm volatile("" ::: "memory")

APART static char *make() {
    char *p = static_cast<char *>(malloc(SIZE));
    DONE;
    return p;
}
APART static char *one() {
    char *p = make();
    DONE;
    return p;
}
APART static char *two() {
    char *p = make();
    DONE;
    return p;
}
APART static char *by_new() {
    char *p = new char[SIZE];
    DONE;
    return p;
}
APART static char *by_calloc() {
    char *p = static_cast<char *>(calloc(1, SIZE));
    DONE;
    return p;
}
APART static char *copy_one() {
    char *p = strdup(std::string(SIZE - 1, 'x').c_str());
    DONE;
    return p;
}
APART static char *copy_two() {
    char *p = strdup(std::string(SIZE - 1, 'y').c_str());
    DONE;
    return p;
}
APART static char *longer() {
    char *p = static_cast<char *>(realloc(malloc(8), SIZE));
    DONE;
    return p;
}
APART static void poke(volatile char *p, long at) { p[at] = 1; }

static char *(*const SITES[])() = {one, two, by_new, by_calloc, copy_one, copy_two, longer};

int main(int, char **argv) {
    if (strcmp(argv[1], "find") == 0) {
        poke(SITES[atoi(argv[2])](), SIZE + 8);
    } else if (strcmp(argv[1], "inner") == 0) {
        free(one() + 4);
    } else if (strcmp(argv[1], "twice") == 0) {
        char *p = one();
        free(p);
        free(p);
    } else {
        for (auto site : SITES) {
            char *blocks[COUNT];
            int guarded = 0;
            // Freed only then, so that none is another one's.
            for (auto &block : blocks)
                guarded += malloc_usable_size(block = site()) == SIZE;
            for (auto block : blocks)
                site == by_new ? delete[] block : free(block);
            printf("%d ", guarded);
        }
        return 0;
    }
    puts("went on");
}
