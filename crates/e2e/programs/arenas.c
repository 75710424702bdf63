/* Explicit arenas and extent hooks, used as with jemalloc: `arenas NAME` prints "NAME ok". */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "arenas.h"

static unsigned looked_up(void *p) {
    unsigned arena = ~0u;
    size_t len = sizeof arena;
    CHECK(mallctl("arenas.lookup", &arena, &len, &p, sizeof p) == 0);
    return arena;
}

static extent_hooks_t *hooks_of(unsigned arena) {
    extent_hooks_t *hooks = NULL;
    size_t len = sizeof hooks;
    CHECK(named(arena, "extent_hooks", &hooks, &len, NULL, 0) == 0);
    return hooks;
}

static extent_hooks_t *set_hooks(unsigned arena, extent_hooks_t *hooks) {
    extent_hooks_t *before = NULL;
    size_t len = sizeof before;
    CHECK(named(arena, "extent_hooks", &before, &len, &hooks, sizeof hooks) == 0);
    return before;
}

/* ---- Hooks that log every call and pass it to the default hooks ---- */

enum { ALLOC, DALLOC, DESTROY, COMMIT, DECOMMIT, LAZY, FORCED, SPLIT, MERGE, KINDS };

static struct {
    extent_hooks_t table;
    extent_hooks_t *original;
    pthread_mutex_t lock;
    unsigned arena;
    size_t calls[KINDS];
    size_t lent; /* bytes */
    int failing;
    int allocating; /* the hooks themselves allocate */
    struct {
        char *at;
        size_t size;
    } extents[4096];
} book = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void enter(int kind, extent_hooks_t *hooks, unsigned arena) {
    CHECK(hooks == &book.table && arena == book.arena);
    if (book.allocating) {
        /* Allocates, as a hook that writes a log would. */
        for (size_t size = 10; size < 100000; size *= 7) {
            char *p = malloc(size);
            CHECK(p != NULL);
            memset(p, 1, size);
            CHECK(looked_up(p) != book.arena);
            free(p);
        }
    }
    pthread_mutex_lock(&book.lock);
    book.calls[kind]++;
}

static void leave(void) { pthread_mutex_unlock(&book.lock); }

static size_t found(void *at, size_t size) {
    for (size_t i = 0; i < 4096; i++) {
        if (book.extents[i].at == at && book.extents[i].size == size)
            return i;
    }
    CHECK(!"an extent that was given");
    return 0;
}

static void add(void *at, size_t size) {
    for (size_t i = 0; i < 4096; i++) {
        if (book.extents[i].at == NULL) {
            book.extents[i].at = at;
            book.extents[i].size = size;
            return;
        }
    }
    CHECK(!"room in the book");
}

static int is_lent(void *p) {
    for (size_t i = 0; i < 4096; i++) {
        char *at = book.extents[i].at;
        if (at && (char *)p >= at && (char *)p < at + book.extents[i].size)
            return 1;
    }
    return 0;
}

static void *log_alloc(extent_hooks_t *h, void *new_addr, size_t size, size_t alignment, bool *zero,
                       bool *commit, unsigned arena) {
    enter(ALLOC, h, arena);
    CHECK(new_addr == NULL && size % 4096 == 0 && alignment >= 4096 &&
          (alignment & (alignment - 1)) == 0);
    void *p = NULL;
    if (!book.failing) {
        p = book.original->alloc(book.original, new_addr, size, alignment, zero, commit, arena);
        CHECK(p != NULL && *zero && *commit && (uintptr_t)p % alignment == 0);
        add(p, size);
        book.lent += size;
    }
    leave();
    return p;
}

static bool log_dalloc(extent_hooks_t *h, void *at, size_t size, bool committed, unsigned arena) {
    enter(DALLOC, h, arena);
    book.extents[found(at, size)].at = NULL;
    book.lent -= size;
    bool refused = book.original->dalloc(book.original, at, size, committed, arena);
    CHECK(!refused);
    leave();
    return refused;
}

static void log_destroy(extent_hooks_t *h, void *at, size_t size, bool committed, unsigned arena) {
    enter(DESTROY, h, arena);
    book.extents[found(at, size)].at = NULL;
    book.lent -= size;
    book.original->destroy(book.original, at, size, committed, arena);
    leave();
}

#define PART(name, kind, hook)                                                                     \
    static bool name(extent_hooks_t *h, void *at, size_t size, size_t offset, size_t length,       \
                     unsigned arena) {                                                             \
        enter(kind, h, arena);                                                                     \
        found(at, size);                                                                           \
        CHECK(offset % 4096 == 0 && length % 4096 == 0 && offset + length <= size);                \
        bool refused = book.original->hook(book.original, at, size, offset, length, arena);        \
        leave();                                                                                   \
        return refused;                                                                            \
    }
PART(log_commit, COMMIT, commit)
PART(log_decommit, DECOMMIT, decommit)
PART(log_lazy, LAZY, purge_lazy)
PART(log_forced, FORCED, purge_forced)

static bool log_split(extent_hooks_t *h, void *at, size_t size, size_t a, size_t b, bool committed,
                      unsigned arena) {
    enter(SPLIT, h, arena);
    book.extents[found(at, size)].size = a;
    add((char *)at + a, b);
    bool refused = book.original->split(book.original, at, size, a, b, committed, arena);
    CHECK(!refused);
    leave();
    return refused;
}

static bool log_merge(extent_hooks_t *h, void *a, size_t size_a, void *b, size_t size_b,
                      bool committed, unsigned arena) {
    enter(MERGE, h, arena);
    CHECK((char *)a + size_a == b);
    book.extents[found(b, size_b)].at = NULL;
    book.extents[found(a, size_a)].size += size_b;
    bool refused = book.original->merge(book.original, a, size_a, b, size_b, committed, arena);
    CHECK(!refused);
    leave();
    return refused;
}

static unsigned logged_arena(void) {
    book.original = hooks_of(0);
    book.table = (extent_hooks_t){log_alloc, log_dalloc, log_destroy, log_commit, log_decommit,
                                  log_lazy,  log_forced, log_split,   log_merge};
    const unsigned next = created(NULL);
    CHECK(done(next, "destroy") == 0);
    book.arena = next; /* a destroyed arena's number is reused for the next one */
    const unsigned arena = created(&book.table);
    CHECK(arena == next && hooks_of(arena) == &book.table);
    return arena;
}

static const size_t SIZES[] = {8, 100, 3000, 14336, 20000, 300000, 3 * MB, 9 * MB};
enum { NSIZES = sizeof SIZES / sizeof *SIZES };

static void use(unsigned arena, int rounds) {
    static void *blocks[20000];
    for (int round = 0; round < rounds; round++) {
        size_t n = 0;
        for (size_t i = 0; i < 2000; i++) {
            const size_t size = SIZES[i % 100 == 99 ? NSIZES - 1 - i / 100 % 4 : i % 4];
            unsigned char *p = in(arena, size);
            CHECK(p != NULL && looked_up(p) == arena);
            memset(p, (int)i, size);
            blocks[n++] = p;
        }
        for (size_t i = 0; i < n; i++) {
            CHECK(*(unsigned char *)blocks[i] == (unsigned char)i);
            if (i % 2)
                free(blocks[i]);
            else
                dallocx(blocks[i], MALLOCX_TCACHE_NONE);
        }
        mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
        CHECK(done(arena, round % 2 ? "purge" : "decay") == 0);
    }
}

static void test_hooks(void) {
    const unsigned arena = logged_arena();
    for (size_t i = 0; i < NSIZES; i++) {
        void *p = in(arena, SIZES[i]);
        CHECK(p != NULL && is_lent(p));
        dallocx(p, MALLOCX_TCACHE_NONE);
    }
    use(arena, 6);
    void *blocks[1000];
    for (size_t i = 0; i < 1000; i++)
        memset(blocks[i] = in(arena, 20000), 1, 20000);
    for (size_t i = 0; i < 1000; i += 2)
        dallocx(blocks[i], MALLOCX_TCACHE_NONE);
    CHECK(done(arena, "purge") == 0);
    for (size_t i = 1; i < 1000; i += 2)
        CHECK(*(char *)blocks[i] == 1);
    CHECK(book.calls[ALLOC] > 0 && book.calls[DALLOC] > 0 && book.calls[FORCED] > 0);
    ssize_t lazily = 0, never = -1;
    CHECK(named(arena, "muzzy_decay_ms", NULL, NULL, &never, sizeof never) == 0);
    CHECK(named(arena, "dirty_decay_ms", NULL, NULL, &lazily, sizeof lazily) == 0);
    for (size_t i = 1; i < 1000; i += 2)
        dallocx(blocks[i], MALLOCX_TCACHE_NONE);
    use(arena, 2);
    CHECK(book.calls[LAZY] > 0);
    CHECK(done(arena, "destroy") == 0);
    CHECK(book.lent == 0);
    for (size_t i = 0; i < 4096; i++)
        CHECK(book.extents[i].at == NULL);
}

static void test_hooks_that_allocate(void) {
    const unsigned arena = logged_arena();
    book.allocating = 1;
    use(arena, 4);
    /* The same if the thread's own blocks come from the arena. */
    unsigned mine = arena, before = 0;
    size_t len = sizeof before;
    const int can = mallctl("thread.arena", &before, &len, &mine, sizeof mine);
    CHECK(can == 0 || can == ENOENT);
    if (can == 0) {
        void *blocks[1000];
        for (int round = 0; round < 5; round++) {
            for (size_t i = 0; i < 1000; i++) {
                blocks[i] = malloc(SIZES[i % 5]);
                CHECK(blocks[i] != NULL);
            }
            for (size_t i = 0; i < 1000; i++)
                free(blocks[i]);
        }
        CHECK(done(arena, "destroy") == EFAULT);
        CHECK(mallctl("thread.arena", NULL, NULL, &before, sizeof before) == 0);
        CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
    }
    CHECK(done(arena, "destroy") == 0);
    CHECK(book.lent == 0);
}

static void test_failing(void) {
    const unsigned arena = logged_arena();
    book.failing = 1;
    errno = 0;
    CHECK(in(arena, 100) == NULL && in(arena, 5 * MB) == NULL);
    void *other = malloc(100);
    CHECK(other != NULL);
    free(other);
    book.failing = 0;
    char *first = in(arena, 100);
    CHECK(first != NULL);
    strcpy(first, "kept");
    book.failing = 1;
    size_t n = 0;
    while (in(arena, 100000) != NULL)
        CHECK(n++ < 100000);
    CHECK(strcmp(first, "kept") == 0);
    CHECK(done(arena, "reset") == 0);
    size_t again = 0;
    while (in(arena, 100000) != NULL)
        again++;
    CHECK(again >= n && again <= n + 1);
    book.failing = 0;
    CHECK(in(arena, 50 * MB) != NULL);
    CHECK(done(arena, "destroy") == 0 && book.lent == 0);
}

/* ---- A program that keeps its cache out of core dumps: default hooks, one of them wrapped ---- */

static extent_hooks_t nodump_table;
static extent_alloc_t *original_alloc;

static void *nodump_alloc(extent_hooks_t *h, void *new_addr, size_t size, size_t alignment,
                          bool *zero, bool *commit, unsigned arena) {
    void *p = original_alloc(h, new_addr, size, alignment, zero, commit, arena);
    if (p != NULL)
        CHECK(madvise(p, size, MADV_DONTDUMP) == 0);
    return p;
}

static void test_nodump(void) {
    const unsigned arena = created(NULL);
    extent_hooks_t *hooks = hooks_of(arena);
    nodump_table = *hooks;
    original_alloc = hooks->alloc;
    nodump_table.alloc = nodump_alloc;
    CHECK(set_hooks(arena, &nodump_table) == hooks);
    CHECK(hooks_of(arena) == &nodump_table);
    void *blocks[500];
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < 500; i++) {
            blocks[i] = in(arena, SIZES[i % 6]);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, SIZES[i % 6]);
        }
        for (size_t i = 0; i < 500; i += 50)
            CHECK(mapped_with(blocks[i], "dd") || is_emulated());
        for (size_t i = 0; i < 500; i++)
            dallocx(blocks[i], MALLOCX_TCACHE_NONE);
        CHECK(done(arena, "purge") == 0);
    }
    CHECK(!mapped_with(malloc(100), "dd"));
    CHECK(done(arena, "destroy") == 0);
}

static void test_destroy(void) {
    for (int hooked = 0; hooked < 2; hooked++) {
        const long before = status("VmRSS:");
        const unsigned arena = hooked ? logged_arena() : created(NULL);
        for (size_t i = 0; i < 200; i++)
            memset(in(arena, i % 2 ? MB : 1000), 1, i % 2 ? MB : 1000);
        CHECK(status("VmRSS:") > before + 80 * 1024);
        CHECK(done(arena, "destroy") == 0);
        CHECK(status("VmRSS:") < before + 8 * 1024);
        bool is = true;
        size_t len = sizeof is;
        CHECK(named(arena, "initialized", &is, &len, NULL, 0) == 0 && !is);
        CHECK(in(arena, 100) == NULL);
        CHECK(created(NULL) == arena);
        CHECK(done(arena, "destroy") == 0);
        CHECK(done(arena, "reset") == EFAULT && done(arena, "destroy") == EFAULT);
    }
    CHECK(done(0, "reset") == EFAULT && done(0, "destroy") == EFAULT);
}

static void test_automatic(void) {
    char *old = malloc(100), *old_large = malloc(MB);
    CHECK(looked_up(old) == 0);
    strcpy(old, "kept");
    nodump_table = *hooks_of(0);
    original_alloc = nodump_table.alloc;
    nodump_table.alloc = nodump_alloc;
    extent_hooks_t *before = set_hooks(0, &nodump_table);
    CHECK(hooks_of(0) == &nodump_table && before != &nodump_table);
    char *new = in(0, 3 * MB);
    CHECK(looked_up(new) == 0 && (mapped_with(new, "dd") || is_emulated()));
    CHECK(strcmp(old, "kept") == 0);
    free(old);
    free(old_large);
    char *moved = realloc(new, 5 * MB);
    CHECK(moved != NULL && looked_up(moved) == 0);
    free(moved);
    CHECK(set_hooks(0, before) == &nodump_table);
    CHECK(hooks_of(0) == before);
    use(0, 2);
}

/* ---- Threads and forks ---- */

static unsigned shared[3];
static volatile int stop;

static void *churn(void *seed) {
    unsigned x = (unsigned)(uintptr_t)seed;
    void *held[64] = {0};
    while (!stop) {
        x = x * 1664525 + 1013904223;
        const unsigned i = x >> 26;
        if (held[i]) {
            if (x & 1)
                free(held[i]);
            else
                dallocx(held[i], MALLOCX_TCACHE_NONE);
            held[i] = NULL;
        } else {
            held[i] = in(shared[x % 3], SIZES[(x >> 8) % 7]);
            CHECK(held[i] != NULL);
            memset(held[i], 1, 8);
        }
        if (x % 4096 == 0)
            CHECK(done(shared[x / 4096 % 3], "purge") == 0);
    }
    for (int i = 0; i < 64; i++)
        free(held[i]);
    return NULL;
}

static void begin_threads(pthread_t threads[4]) {
    for (int i = 0; i < 2; i++)
        shared[i] = created(NULL);
    shared[2] = logged_arena();
    stop = 0;
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
}

static void end_threads(pthread_t threads[4]) {
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        CHECK(done(shared[i], "destroy") == 0);
    CHECK(book.lent == 0);
}

static void test_threads(void) {
    pthread_t threads[4];
    begin_threads(threads);
    usleep(700 * 1000);
    end_threads(threads);
}

static void test_fork(void) {
    pthread_t threads[4];
    begin_threads(threads);
    for (int round = 0; round < 40; round++) {
        usleep(5000);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(180);
            pthread_mutex_init(&book.lock, NULL);
            for (int i = 0; i < 2; i++) {
                for (size_t s = 0; s < NSIZES; s++)
                    CHECK(in(shared[i], SIZES[s]) != NULL);
                CHECK(done(shared[i], "purge") == 0);
                CHECK(done(shared[i], "destroy") == 0);
            }
            const unsigned arena = created(NULL);
            CHECK(in(arena, 1000) != NULL);
            /* Blocks of the arenas in the other threads' caches must not turn up again. */
            void *held[2000];
            for (int i = 0; i < 20000; i++) {
                if (i >= 2000)
                    free(held[i % 2000]);
                held[i % 2000] = malloc(SIZES[i % 5]);
            }
            _exit(0);
        }
        int how;
        CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    end_threads(threads);
}

/* ---- Hooks that break their contract: the process aborts with a message ---- */

static char *pool;

static void *same_alloc(extent_hooks_t *h, void *new_addr, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)h, (void)new_addr, (void)size, (void)alignment, (void)arena;
    *zero = *commit = true;
    return pool;
}

static void test_lies(int kind) {
    static extent_hooks_t table;
    pool = mmap(NULL, 512 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    CHECK(pool != MAP_FAILED);
    pool = (char *)(((uintptr_t)pool + 2 * MB) & ~(2 * MB - 1));
    table.alloc = same_alloc;
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (kind == 1)
        pool += 4096;
    if (kind == 2)
        pool = (char *)((uintptr_t)malloc(8 * MB) & ~(2 * MB - 1));
    const unsigned arena = created(&table);
    for (int i = 0; i < 100; i++)
        in(arena, 5 * MB);
}

#define TEST(name)                                                                                 \
    if (strcmp(argv[1], #name) == 0) {                                                             \
        test_##name();                                                                             \
        printf("%s ok\n", argv[1]);                                                                \
        return 0;                                                                                  \
    }

int main(int argc, char **argv) {
    CHECK(argc == 2);
    TEST(hooks)
    TEST(hooks_that_allocate)
    TEST(failing)
    TEST(nodump)
    TEST(destroy)
    TEST(automatic)
    TEST(threads)
    TEST(fork)
    if (strcmp(argv[1], "same_twice") == 0)
        test_lies(0);
    if (strcmp(argv[1], "misaligned") == 0)
        test_lies(1);
    if (strcmp(argv[1], "ours") == 0)
        test_lies(2);
    fprintf(stderr, "no test %s\n", argv[1]);
    return 1;
}
