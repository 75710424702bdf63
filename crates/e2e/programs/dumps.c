// Profiles of many call stacks, and figures that a profile is compared with. The program is linked
// with the library.
//
//   dumps sites N FILE...  holds blocks of N sites; says of each file how its profile went
//   dumps frag FILE N      frees most of N small blocks at random; prints the free bytes in slabs
//   dumps lives FILE       frees blocks after lives of known lengths; prints their mean
//   dumps live             holds blocks; prints their bytes, as counted and as estimated
//   dumps blocks SIZE N    allocates N blocks of up to SIZE bytes; prints what they cost
#include <mallard.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "controls.h"
#include "measured.h"

#define APART __attribute__((noinline, noipa))

static uint64_t random_state = 1;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static size_t statistic(const char *name) {
    SET(uint64_t, "epoch", 1);
    return GET(size_t, name);
}

static int dump(const char *file) { return mallard_profile_dump(file); }

enum { BITS = 14 };

// A stack for each number: a left or a right turn for each of its bits.
APART static void *left(unsigned number, int bits);
APART static void *right(unsigned number, int bits);

static void *turn(unsigned number, int bits) {
    if (bits == 0)
        return malloc(64);
    return number & 1 ? right(number >> 1, bits - 1) : left(number >> 1, bits - 1);
}

static void *left(unsigned number, int bits) {
    void *block = turn(number, bits);
    __asm__ volatile("");
    return block;
}

static void *right(unsigned number, int bits) {
    void *block = turn(number, bits);
    __asm__ volatile("");
    return block;
}

static int sites(int n, char **files) {
    static void *kept[1 << BITS];
    for (int i = 0; i < n; i++)
        kept[i] = left(i, BITS);
    for (; *files != NULL; files++) {
        uint64_t start = now_ns();
        int code = dump(**files == 0 ? NULL : *files);
        printf("%s: %d, %zu sites, %.2f ms\n", *files, code, GET(size_t, "prof.sites"),
               (now_ns() - start) / 1e6);
    }
    for (int i = 0; i < n; i++)
        free(kept[i]);
    return 0;
}

enum { MANY = 3000000 };
static void *many[MANY];

APART static void *small(void) { return malloc(48); }
APART static void *middle(void) { return malloc(250); }
APART static void *big(void) { return malloc(400); }

static int frag(const char *file, int n) {
    void *(*const ways[])(void) = {small, middle, big};
    CHECK(n <= MANY);
    for (int i = 0; i < n; i++)
        many[i] = ways[i % 3]();
    for (int i = 0; i < n; i++)
        if (next_random() % 10 < 6)
            free(many[i]);
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    CHECK(dump(file) == 0);
    SET(uint64_t, "epoch", 1);
    size_t bytes = 0;
    unsigned bins = GET(unsigned, "arenas.nbins");
    for (unsigned i = 0; i < bins; i++) {
        char name[80];
#define OF_BIN(type, format) (snprintf(name, sizeof name, format, i), GET(type, name))
        size_t slabs = OF_BIN(size_t, "stats.arenas.4096.bins.%u.curslabs");
        size_t blocks = OF_BIN(size_t, "stats.arenas.4096.bins.%u.curregs");
        size_t regions = OF_BIN(uint32_t, "arenas.bin.%u.nregs");
        bytes += (slabs * regions - blocks) * OF_BIN(size_t, "arenas.bin.%u.size");
    }
    printf("%zu\n", bytes);
    return 0;
}

enum { TICKS = 1200, A_TICK = 200, MEAN_TICKS = 60 };

// Lives end with equal chances at each tick: their lengths are distributed exponentially.
static int lives(const char *file) {
    static struct {
        void *block;
        uint64_t born;
    } held[1 << 18];
    size_t count = 0, freed = 0;
    double sum = 0;
    for (int tick = 0; tick < TICKS; tick++) {
        for (int i = 0; i < A_TICK; i++) {
            held[count].block = malloc(100);
            held[count++].born = now_ns();
        }
        for (size_t i = 0; i < count;) {
            if (next_random() % MEAN_TICKS != 0) {
                i++;
                continue;
            }
            free(held[i].block);
            sum += now_ns() - held[i].born;
            freed++;
            held[i] = held[--count];
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECK(dump(file) == 0);
    printf("%.0f\n", sum / freed);
    return 0;
}

static int live(void) {
    for (int i = 0; i < 400000; i++)
        many[i] = malloc(next_random() % 2000);
    for (int i = 0; i < 400000; i += 3)
        free(many[i]);
    printf("%zu %zu %zu\n", statistic("stats.allocated"), (size_t)GET(uint64_t, "prof.live.bytes"),
           GET(size_t, "prof.samples"));
    return 0;
}

static int blocks(size_t size, int n) {
    CHECK(n <= MANY);
    size_t before = statistic("stats.active") + statistic("stats.metadata");
    for (int i = 0; i < n; i++)
        many[i] = malloc(1 + next_random() % size);
    size_t after = statistic("stats.active") + statistic("stats.metadata");
    CHECK(statistic("stats.allocated") <= statistic("stats.active"));
    printf("%zu %zu\n", after - before, GET(size_t, "prof.samples"));
    return 0;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (strcmp(way, "sites") == 0 && argc > 2)
        return sites(atoi(argv[2]), argv + 3);
    if (strcmp(way, "frag") == 0 && argc > 3)
        return frag(argv[2], atoi(argv[3]));
    if (strcmp(way, "lives") == 0 && argc > 2)
        return lives(argv[2]);
    if (strcmp(way, "live") == 0)
        return live();
    if (strcmp(way, "blocks") == 0 && argc > 3)
        return blocks(atol(argv[2]), atoi(argv[3]));
    fprintf(stderr, "the first lines of the source say what it does\n");
    return 2;
}
