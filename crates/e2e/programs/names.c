/* Rarely used names of jemalloc's mallctl, one behaviour per sub-command: `names NAME` prints "NAME
 * ok" or fails a check. `names walk` reads lines `NAME ACCESS BYTES [BLOCK]` and prints the result
 * for each name. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "malloc_more.h"
#include "measured.h"
#include "controls.h"

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
extern void *mallocx(size_t, int) __attribute__((weak));
extern void dallocx(void *, int) __attribute__((weak));
extern size_t sallocx(const void *, int) __attribute__((weak));

#define ARENA(i) (((int)(i) + 1) << 20)
#define NO_CACHE (1 << 8)

const char *malloc_conf = "narenas:2,dirty_decay_ms:7";
const char *malloc_conf_2_conf_harder = "muzzy_decay_ms:77";

static void flush(void) { CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0); }

/* The result of reading each name with its type's length, and of writing to a read-only one. */
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
            /* The name exists but cannot be read. */
            answer = mallctl(name, room, &size, NULL, 0) == EPERM
                         ? 0
                         : mallctl(name, room, &size, NULL, 0);
        }
        printf("%s %d %zu\n", name, answer, size);
    }
}

/* Option strings can be read back, and their settings take effect in order. Started with
 * MALLOC_CONF=dirty_decay_ms:70,muzzy_decay_ms:700. */
static void test_sources(void) {
    CHECK(strcmp(GET(const char *, "opt.malloc_conf.global_var"), malloc_conf) == 0);
    CHECK(strcmp(GET(const char *, "opt.malloc_conf.global_var_2_conf_harder"),
                 malloc_conf_2_conf_harder) == 0);
    setenv("MALLOC_CONF", "narenas:1", 1);
    CHECK(strcmp(GET(const char *, "opt.malloc_conf.env_var"),
                 "dirty_decay_ms:70,muzzy_decay_ms:700") == 0);
    const char *link;
    size_t size = sizeof link;
    CHECK(mallctl("opt.malloc_conf.symlink", &link, &size, NULL, 0) == ENOENT);
    CHECK(GET(unsigned, "opt.narenas") == 2);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == 70);
    CHECK(GET(ssize_t, "opt.muzzy_decay_ms") == 77);
}

/* The count is current without a new epoch. */
static void test_zero_reallocs(void) {
    size_t before = GET(size_t, "stats.zero_reallocs");
    void *volatile block = malloc(100);
    void *volatile none = NULL;
    size_t zero = (size_t)none;
    CHECK(realloc(block, zero) == NULL);
    CHECK(GET(size_t, "stats.zero_reallocs") == before + 1);
}

/* Started with zero_realloc:alloc: the thread counts the old block and the new one. */
static void test_zero_realloc_counts(void) {
    volatile size_t zero = 0;
    for (size_t size = 1; size < 4 << 20; size = size * 3 + 1) {
        char *block = malloc(size);
        size_t usable = malloc_usable_size(block);
        uint64_t allocated = GET(uint64_t, "thread.allocated"),
                 freed = GET(uint64_t, "thread.deallocated");
        char *volatile other = realloc(block, zero);
        CHECK(other != NULL && malloc_usable_size(other) < 100);
        CHECK(GET(uint64_t, "thread.allocated") == allocated + malloc_usable_size(other));
        CHECK(GET(uint64_t, "thread.deallocated") == freed + usable);
        free(other);
    }
}

/* Started with zero:true or junk:true. */
static void test_tcache(void) {
    CHECK(GET(bool, "thread.tcache.enabled"));
    CHECK(SET(bool, "thread.tcache.enabled", false) == 0 && !GET(bool, "thread.tcache.enabled"));
    CHECK(SET(bool, "thread.tcache.enabled", true) == 0 && GET(bool, "thread.tcache.enabled"));
}

static size_t most_cached(size_t size) {
    size_t most, room = sizeof most;
    CHECK(mallctl("thread.tcache.ncached_max.read_sizeclass", &most, &room, &size, sizeof size) ==
          0);
    return most;
}

/* How many free blocks of a size a flush of the cache returns. */
static size_t cached(size_t size) {
    enum { BLOCKS = 3000 };
    static void *blocks[BLOCKS];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(size);
            memset(blocks[i], 1, size);
        }
        for (int i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
        }
    }
    uint64_t epoch = 1;
    CHECK(SET(uint64_t, "epoch", epoch) == 0);
    return GET(size_t, "stats.arenas.0.tcache_bytes") / size;
}

static void test_own_cached_blocks(void) {
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "1-4096:0") == 0);
    CHECK(cached(64) == 0 && cached(1024) == 0);
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "64-64:10") == 0);
    CHECK(cached(64) <= 10 && cached(64) > 0);
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "64-64:0|1024-1024:1") == 0);
    CHECK(cached(64) <= 1 && cached(1024) <= 1);
}

static void test_ncached_max(void) {
    CHECK(most_cached(64) > 1 && most_cached(1 << 20 >> 4) <= 4095);
    size_t size = (size_t)1 << 40, most, room = sizeof most;
    CHECK(mallctl("thread.tcache.ncached_max.read_sizeclass", &most, &room, &size, sizeof size) ==
          EINVAL);
    CHECK(mallctl("thread.tcache.ncached_max.read_sizeclass", &most, &room, NULL, 0) == EINVAL);
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "8-32:12|64-64:1|128-128:0") == 0);
    CHECK(most_cached(8) == 12 && most_cached(32) == 12 && most_cached(64) == 1 &&
          most_cached(128) == 0);
    size_t other = most_cached(256);
    CHECK(other > 1);
    /* A list with an invalid part changes nothing. */
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "64-64:9|x") == EINVAL &&
          most_cached(64) == 1);
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "") == 0);
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", NULL) == EINVAL);
    /* Blocks can still be allocated and freed. */
    for (size_t size = 8; size <= 512; size *= 2) {
        void *blocks[500];
        for (int i = 0; i < 500; i++) {
            CHECK((blocks[i] = malloc(size)) != NULL);
            memset(blocks[i], i, size);
        }
        for (int i = 0; i < 500; i++) {
            CHECK(((unsigned char *)blocks[i])[size - 1] == (unsigned char)i);
            free(blocks[i]);
        }
    }
    CHECK(SET(bool, "thread.tcache.enabled", false) == 0);
    CHECK(most_cached(256) == 0);
    CHECK(SET(const char *, "thread.tcache.ncached_max.write", "8-8:1") == ENOENT);
    CHECK(SET(bool, "thread.tcache.enabled", true) == 0);
    CHECK(most_cached(256) == other);
}

struct utilization {
    void *next_slab;
    size_t free, regions, bytes, bin_free, bin_regions;
};

static struct utilization query(void *block) {
    struct utilization told;
    size_t size = sizeof told;
    CHECK(mallctl("experimental.utilization.query", &told, &size, &block, sizeof block) == 0);
    return told;
}

/* An arena without other blocks, so that the figures are exact. */
static void test_utilization(void) {
    unsigned arena = GET(unsigned, "arenas.create");
    int flags = ARENA(arena) | NO_CACHE;
    void *first = mallocx(100, flags);
    struct utilization one = query(first);
    CHECK(one.regions > 1 && one.free == one.regions - 1 && one.bytes >= one.regions * 112);
    CHECK(one.bin_regions == one.regions && one.bin_free == one.free && one.next_slab != NULL);
    CHECK((char *)first >= (char *)one.next_slab &&
          (char *)first < (char *)one.next_slab + one.bytes);
    for (int i = 0; i < 10; i++) {
        CHECK(mallocx(100, flags) != NULL);
    }
    CHECK(query(first).free == one.regions - 11);
    for (size_t i = 11; i < one.regions; i++) {
        CHECK(mallocx(100, flags) != NULL);
    }
    struct utilization full = query(first);
    CHECK(full.free == 0 && full.bin_free == 0 && full.next_slab == NULL);
    CHECK(mallocx(100, flags) != NULL);
    struct utilization two = query(first);
    CHECK(two.free == 0 && two.bin_regions == 2 * one.regions && two.bin_free == one.regions - 1);
    CHECK(two.next_slab != NULL && two.next_slab != one.next_slab);

    void *large = mallocx(1 << 20, flags);
    struct utilization whole = query(large);
    CHECK(whole.next_slab == NULL && whole.free == 0 && whole.regions == 1 &&
          whole.bytes >= 1 << 20);
    CHECK(whole.bin_free == 0 && whole.bin_regions == 0);
    int local;
    struct utilization none = query(&local);
    CHECK(none.next_slab == NULL && none.regions == 0 && none.bytes == 0);

    void *several[3] = {first, large, &local};
    size_t told[3][3], size = sizeof told;
    CHECK(mallctl("experimental.utilization.batch_query", told, &size, several, sizeof several) ==
          0);
    CHECK(told[0][0] == 0 && told[0][1] == one.regions && told[0][2] == one.bytes);
    CHECK(told[1][0] == 0 && told[1][1] == 1 && told[1][2] == whole.bytes && told[2][1] == 0);
    size = sizeof told - 1;
    told[0][1] = 7;
    CHECK(mallctl("experimental.utilization.batch_query", told, &size, several, sizeof several) ==
          EINVAL);
    size = sizeof told;
    CHECK(mallctl("experimental.utilization.batch_query", told, &size, several, 0) == EINVAL &&
          told[0][1] == 7);
    size = sizeof one - 8;
    CHECK(mallctl("experimental.utilization.query", &one, &size, &first, sizeof first) == EINVAL);
}

static void test_batch_alloc(void) {
    enum { BLOCKS = 1000 };
    void *blocks[BLOCKS];
    struct {
        void **blocks;
        size_t number, size;
        int flags;
    } batch = {blocks, BLOCKS, 40, 6 /* 64 bytes */};
    size_t made, size = sizeof made;
    CHECK(mallctl("experimental.batch_alloc", &made, &size, &batch, sizeof batch) == 0 &&
          made == BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((uintptr_t)blocks[i] % 64 == 0 && sallocx(blocks[i], 0) >= 40);
        memset(blocks[i], i, 40);
    }
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(((unsigned char *)blocks[i])[39] == (unsigned char)i);
        dallocx(blocks[i], 0);
    }
    batch.size = (size_t)1 << 62;
    CHECK(mallctl("experimental.batch_alloc", &made, &size, &batch, sizeof batch) == 0 &&
          made == 0);
    CHECK(mallctl("experimental.batch_alloc", &made, &size, &batch, 8) == EINVAL);
    CHECK(mallctl("experimental.batch_alloc", NULL, NULL, &batch, sizeof batch) == EINVAL);
}

/* The active pages of an explicit arena grow by the size of the allocations. */
static void test_pactivep(void) {
    unsigned arena = GET(unsigned, "arenas.create");
    void *block = mallocx(1 << 20, ARENA(arena) | NO_CACHE);
    char name[64];
    snprintf(name, sizeof name, "experimental.arenas.%u.pactivep", arena);
    volatile size_t *active = GET(size_t *, name);
    size_t page = GET(size_t, "arenas.page"), before = *active;
    CHECK(before >= (1 << 20) / page);
    void *other = mallocx(8 << 20, ARENA(arena) | NO_CACHE);
    CHECK(*active - before >= (8 << 20) / page && *active - before < (9 << 20) / page);
    dallocx(other, NO_CACHE);
    CHECK(*active == before);
    dallocx(block, NO_CACHE);
}

static void *hook_alloc(void *hooks, void *address, size_t size, size_t alignment, bool *zero,
                        bool *commit, unsigned arena);
static unsigned hooked;
static struct {
    void *alloc, *dalloc, *destroy, *commit, *decommit, *lazy, *forced, *split, *merge;
} hooks = {.alloc = hook_alloc};

static void *hook_alloc(void *table, void *address, size_t size, size_t alignment, bool *zero,
                        bool *commit, unsigned arena) {
    (void)table, (void)arena;
    hooked++;
    char *memory =
        mmap(NULL, size + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address != NULL || memory == MAP_FAILED) {
        return NULL;
    }
    *zero = *commit = true;
    return memory + (alignment - (uintptr_t)memory % alignment);
}

static void test_create_ext(void) {
    struct {
        void *hooks;
        bool metadata;
    } config = {&hooks, false};
    unsigned arena;
    size_t size = sizeof arena;
    CHECK(mallctl("experimental.arenas_create_ext", &arena, &size, &config, sizeof config) == 0);
    CHECK(hooked == 0);
    void *block = mallocx(42, ARENA(arena) | NO_CACHE);
    CHECK(block != NULL && hooked == 1);
    unsigned owner;
    CHECK(mallctl("arenas.lookup", &owner, &size, &block, sizeof block) == 0 && owner == arena);
    dallocx(block, NO_CACHE);
    CHECK(mallctl("experimental.arenas_create_ext", &arena, &size, NULL, 0) == 0);
    CHECK(mallocx(42, ARENA(arena) | NO_CACHE) != NULL && hooked == 1);
    CHECK(mallctl("experimental.arenas_create_ext", &arena, &size, &config, 8) == EINVAL);
}

static size_t allocations, frees;
static uint64_t told_allocated;

static void on_event(bool is_alloc, uint64_t allocated, uint64_t freed) {
    (void)freed;
    *(is_alloc ? &allocations : &frees) += 1;
    told_allocated = allocated;
    /* A callback may allocate. */
    void *volatile block = malloc(10000);
    free(block);
}

static void test_thread_event(void) {
    struct {
        void (*function)(bool, uint64_t, uint64_t);
        uint64_t bytes;
        bool alloc_only;
    } event = {on_event, 1 << 20, false}, none = {NULL, 1 << 20, false},
      zero = {on_event, 0, false};
    const char *name = "experimental.hooks.thread_event";
    CHECK(mallctl(name, NULL, NULL, &none, sizeof none) == EINVAL);
    CHECK(mallctl(name, NULL, NULL, &zero, sizeof zero) == EINVAL);
    CHECK(mallctl(name, NULL, NULL, NULL, 0) == EINVAL);
    CHECK(mallctl(name, NULL, NULL, &event, sizeof event) == 0);
    /* Installing it again has no effect. */
    CHECK(mallctl(name, NULL, NULL, &event, sizeof event) == 0);
    for (int i = 0; i < 20000; i++) {
        void *volatile block = malloc(1024);
        free(block);
    }
    CHECK(allocations >= 17 && allocations <= 25 && frees >= 17 && frees <= 25);
    CHECK(told_allocated >= 17 << 20 && told_allocated < 25 << 20);
}

static char line[256];

static void on_misuse(const char *text) {
    snprintf(line, sizeof line, "%s", text);
    if (strstr(text, "free") != NULL) {
        static const char done[] = "safety_check_abort ok\n";
        if (write(STDOUT_FILENO, done, sizeof done - 1) > 0) {
            _exit(0);
        }
    }
}

static void test_safety_check_abort(void) {
    CHECK(SET(void *, "experimental.hooks.safety_check_abort", on_misuse) == 0);
    char *large = mallocx(1 << 20, NO_CACHE);
    dallocx(large + 4096, NO_CACHE);
    flush();
    CHECK(false);
}

/* Started with decay times that keep freed memory. */
static void test_oversize(void) {
    size_t before = GET(size_t, "arena.0.oversize_threshold");
    CHECK(before > (size_t)1 << 30);
    for (int from = 0; from < 2; from++) {
        if (from == 1) {
            CHECK(SET(size_t, "arena.0.oversize_threshold", 4 << 20) == 0);
            CHECK(GET(size_t, "arena.0.oversize_threshold") == 4 << 20);
        }
        char *volatile large = malloc(64 << 20);
        memset(large, 1, 64 << 20);
        size_t with = resident();
        free(large);
        size_t without = resident();
        CHECK(from == 1 ? without + (60 << 20) < with : without + (4 << 20) > with);
    }
}

static void test_metadata(void) {
    for (size_t i = 0; i < 20000; i++) {
        CHECK(malloc(1000) != NULL);
    }
    CHECK(SET(uint64_t, "epoch", 1) == 0);
    size_t all = GET(size_t, "stats.metadata"), records = GET(size_t, "stats.metadata_edata");
    size_t maps = GET(size_t, "stats.metadata_rtree");
    CHECK(records > 0 && maps > 0 && records + maps <= all);
    CHECK(GET(size_t, "stats.arenas.4096.metadata_edata") == records);
    CHECK(GET(size_t, "stats.arenas.4096.metadata_rtree") == maps);
    CHECK(GET(size_t, "stats.arenas.0.metadata_edata") <= records);
}

static const struct {
    const char *name;
    void (*test)(void);
} tests[] = {
    {"sources", test_sources},
    {"zero_reallocs", test_zero_reallocs},
    {"zero_realloc_counts", test_zero_realloc_counts},
    {"tcache", test_tcache},
    {"ncached_max", test_ncached_max},
    {"own_cached_blocks", test_own_cached_blocks},
    {"utilization", test_utilization},
    {"batch_alloc", test_batch_alloc},
    {"pactivep", test_pactivep},
    {"create_ext", test_create_ext},
    {"thread_event", test_thread_event},
    {"safety_check_abort", test_safety_check_abort},
    {"oversize", test_oversize},
    {"metadata", test_metadata},
};

int main(int count, char **arguments) {
    CHECK(count == 2 && mallctl != NULL);
    if (strcmp(arguments[1], "walk") == 0) {
        test_walk();
        return 0;
    }
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(tests[i].name, arguments[1]) == 0) {
            tests[i].test();
            printf("%s ok\n", arguments[1]);
            return 0;
        }
    }
    return 98;
}
