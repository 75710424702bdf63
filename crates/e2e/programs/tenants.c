/* An arena for each of many tenants: what each holds, and where the arenas end. `tenants NAME`
 * prints "NAME ok", or "NAME skipped" where the system has no huge pages. */
#include <errno.h>
#include <sys/resource.h>

#include "arenas.h"

enum { TENANTS = 2000, EACH_KIB = 64, NUMBERS = 4095 };

static char *blocks[NUMBERS];

/* An arena with one small block. */
static unsigned tenant(unsigned char mark) {
    const unsigned arena = created(NULL);
    blocks[arena] = in(arena, 100);
    CHECK(blocks[arena] != NULL);
    memset(blocks[arena], mark, 100);
    return arena;
}

static int is_intact(const char *block, unsigned char mark) {
    for (int i = 0; i < 100; i++) {
        if ((unsigned char)block[i] != mark)
            return 0;
    }
    return 1;
}

/* Has the automatic arenas hold that many MiB of small blocks. */
static void hold(int mib) {
    for (int i = 0; i < mib * 1024; i++) {
        char *block = malloc(1000);
        CHECK(block != NULL);
        memset(block, 1, 1000);
    }
}

/* Has an arena hold that many MiB; returns the last block. */
static char *grow(unsigned arena, int mib) {
    char *block = NULL;
    for (int i = 0; i < mib * 256; i++) {
        block = in(arena, 4000);
        CHECK(block != NULL);
        memset(block, 1, 4000);
    }
    return block;
}

static int mappings(void) {
    int count = 0, c;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while ((c = getc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}

static void test_small(int mib) {
    hold(mib);
    tenant(0);
    const long before = status("VmRSS:"), size = status("VmSize:");
    const int mapped = mappings();
    for (int i = 0; i < TENANTS; i++)
        tenant((unsigned char)i);
    const long each = (status("VmRSS:") - before) / TENANTS;
    if (each > EACH_KIB)
        dprintf(STDERR_FILENO, "%ld KiB each\n", each);
    CHECK(each <= EACH_KIB);
    CHECK((status("VmSize:") - size) / TENANTS <= 1024);
    CHECK(mappings() - mapped <= TENANTS + TENANTS / 8);
}

static int has_huge_pages(void) { return access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0; }

/* What a tenant's memory is, whatever the process holds and whichever tenant had the arena. */
static void test_growing(void) {
    hold(96);
    for (int round = 0; round < 3; round++) {
        const unsigned arena = tenant(1);
        CHECK(mapped_with(blocks[arena], "nh"));
        char *last = grow(arena, 96);
        CHECK(mapped_with(blocks[arena], "nh") && mapped_with(last, "hg"));
        CHECK(in(arena, 20 * MB) != NULL);
        CHECK(done(arena, "destroy") == 0);
        const long before = status("VmRSS:");
        CHECK(tenant(1) == arena && mapped_with(blocks[arena], "nh"));
        CHECK(status("VmRSS:") - before <= 4 * EACH_KIB);
        CHECK(done(arena, "destroy") == 0);
        /* Its first block is long. */
        const unsigned other = created(NULL);
        char *block = in(other, 20 * MB);
        CHECK(block != NULL && mapped_with(block, "hg"));
        CHECK(done(other, "destroy") == 0);
    }
}

/* Makes tenants until the system or the library refuses; returns how many. */
static int make_until_refused(void) {
    for (int made = 0;; made++) {
        unsigned arena;
        size_t len = sizeof arena;
        const int error = mallctl("arenas.create", &arena, &len, NULL, 0);
        CHECK(error == 0 || error == EAGAIN);
        if (error != 0)
            return made;
        char *block = in(arena, 100);
        if (block == NULL) {
            CHECK(done(arena, "destroy") == 0);
            return made;
        }
        memset(block, 7, 100);
        blocks[arena] = block;
    }
}

static void test_limits(void) {
    struct rlimit unlimited;
    CHECK(getrlimit(RLIMIT_AS, &unlimited) == 0);
    struct rlimit limited = unlimited;
    limited.rlim_cur = (rlim_t)status("VmSize:") * 1024 + 128 * MB;
    CHECK(setrlimit(RLIMIT_AS, &limited) == 0);
    const int few = make_until_refused();
    CHECK(few > 100 && few < NUMBERS / 2);
    CHECK(setrlimit(RLIMIT_AS, &unlimited) == 0);
    const int all = few + make_until_refused();
    CHECK(all < NUMBERS && all > NUMBERS - 128);
    int there = 0;
    for (int i = 0; i < NUMBERS; i++) {
        if (blocks[i] == NULL)
            continue;
        CHECK(is_intact(blocks[i], 7));
        CHECK(done((unsigned)i, "destroy") == 0);
        there++;
    }
    CHECK(there == all);
    CHECK(tenant(3) < NUMBERS);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *name = argv[1];
    if (strcmp(name, "small") == 0) {
        test_small(0);
    } else if (strcmp(name, "small_beside_much") == 0) {
        test_small(96);
    } else if (strcmp(name, "limits") == 0) {
        test_limits();
    } else if (strcmp(name, "growing") == 0) {
        if (!has_huge_pages()) {
            printf("%s skipped\n", name);
            return 0;
        }
        test_growing();
    } else {
        fprintf(stderr, "no test %s\n", name);
        return 1;
    }
    printf("%s ok\n", name);
    return 0;
}
