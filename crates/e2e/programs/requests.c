/* One size, requested in one way, in a process of its own.
 *
 *     requests WHERE BEFORE WAY SIZE ALIGNMENT
 *
 * WHERE is the place in the program: `plain`, or one of `places` below. BEFORE is what was
 * requested before: `nothing`, `small`, `many`; or `all`, which requests every size in turn and
 * ignores SIZE. The process requests SIZE up to a hundred times, keeps all of it, uses both ends of
 * the first, second and last block, requests small blocks in between, frees everything and does it
 * once more.
 *
 * It exits with VERDICT and a bit for each of the first, the second, the last request and the one
 * after all was freed: 1 if it gave memory. A failed check exits with 99 and says which. With
 * REQUESTS_HOOKS in the environment, the automatic arena has extent hooks of the program's own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expendable.h"
#include "requests.h"

enum { VERDICT = 40, SECONDS_MAX = 10, COUNT = 100, COUNT_ALIGNED = 10, AGAIN = 20 };
#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
/* Longer blocks, and those aligned to more, have mappings of their own, which end with them. */
#define OWN_MAPPING (128 * MIB)
/* What the allocator may keep: some of these for a while; addresses, such as a reservation of a
 * GiB; and memory. */
#define KEPT_MAPPINGS ((size_t)4)
#define KEPT_ADDRESSES (2 * GIB)
#define KEPT_MEMORY (48 * MIB)
/* What a process may have in addition, where it sets a limit: blocks, and small ones besides. */
#define LIMIT (4 * GIB)
#define LIMIT_BESIDES (64 * MIB)

/* ---- What the process has, read without the allocator ---- */

typedef struct {
    size_t addresses, memory, data;
} Size;

static Size process_size(void) {
    char text[256];
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    const ssize_t length = read(file, text, sizeof text - 1);
    CHECK(length > 0);
    close(file);
    text[length] = 0;
    size_t pages[7], count = 0;
    for (char *at = text; count < 7; count++)
        pages[count] = strtoul(at, &at, 10);
    const Size size = {pages[0] * PAGE, pages[1] * PAGE, pages[5] * PAGE};
    return size;
}

static void within(size_t before, size_t after, size_t bound, const char *what) {
    if (after <= before + bound)
        return;
    dprintf(STDERR_FILENO, "%s: %zu KiB before, %zu KiB after, of which %zu may stay\n", what,
            before >> 10, after >> 10, bound >> 10);
    _exit(99);
}

/* ---- Blocks ---- */

typedef struct {
    const Way *way;
    size_t size, alignment;
} Request;

/* Every request goes through here. */
static char *take(const Request *r) {
    enum { UNTOUCHED = 77 };
    errno = UNTOUCHED;
    refusal = 0;
    char *block = (char *)r->way->take(r->size, r->alignment);
    if (block == NULL) {
        CHECK(refusal == ENOMEM);
        CHECK(!(r->way->flags & SETS_ERRNO) || errno == ENOMEM);
    } else {
        /* glibc promises this for free only. */
        CHECK(!is_mallard() || errno == UNTOUCHED);
        CHECK(malloc_usable_size(block) >= r->size);
    }
    return block;
}

static int zeroed_by_option;

/* Both ends of a new block are the program's. */
static void use(const Request *r, char *block) {
    const size_t least = r->size >= 16 ? 16 : 8;
    const size_t alignment = r->alignment > least ? r->alignment : least;
    CHECK(((uintptr_t)block & (alignment - 1)) == 0);
    const size_t end = smaller(r->size, PAGE);
    const int flags = r->way->flags;
    if (flags & ZEROED || (zeroed_by_option && !(flags & RESIZED)))
        for (size_t at = 0; at < end; at++)
            CHECK(block[at] == 0 && block[r->size - end + at] == 0);
    memset(block, 'u', end);
    memset(block + r->size - end, 'u', end);
}

static void is_used(const Request *r, const char *block) {
    const size_t end = smaller(r->size, PAGE);
    for (size_t at = 0; at < end; at++)
        CHECK(block[at] == 'u' && block[r->size - end + at] == 'u');
}

/* The next small request works, whatever happened before. */
static void small_ones(void) {
    static const size_t sizes[] = {1, 24, 200, 3000, 70000, MIB};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    char *blocks[SIZES];
    for (int i = 0; i < SIZES; i++) {
        CHECK((blocks[i] = (char *)malloc(sizes[i])));
        memset(blocks[i], 's', smaller(sizes[i], PAGE));
    }
    for (int i = 0; i < SIZES; i++) {
        for (size_t at = 0; at < smaller(sizes[i], PAGE); at++)
            CHECK(blocks[i][at] == 's');
        free(blocks[i]);
    }
}

static void many_others(char **kept, int count) {
    static const size_t sizes[] = {16, 100, 1000, 5000, 40000, 300000, 3 * MIB};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < count; i++) {
        CHECK((kept[i] = (char *)malloc(sizes[i % SIZES])));
        kept[i][0] = (char)i;
        if (i % 3 == 0) {
            free(kept[i]);
            kept[i] = NULL;
        }
    }
}

/* ---- The requests of a case ---- */

static int is_limited;
static Size at_start;

/* The addresses that a block may need. A size that no system grants is a round number. */
static size_t length_of(const Request *r) {
    return r->size < (size_t)1 << 48 ? r->size + r->alignment : (size_t)1 << 48;
}

static int has_own_mapping(const Request *r) {
    return r->size >= OWN_MAPPING || r->alignment >= OWN_MAPPING;
}

/* How many are requested and kept. An alignment may cost as many addresses; a heap of many long
 * blocks takes time; the option `zero:true` costs memory, where what it clears is not new. */
static int count_of(const Request *r) {
    const int count = r->alignment > 2 * MIB ? COUNT_ALIGNED : COUNT;
    const size_t most = is_limited           ? LIMIT / 2
                        : has_own_mapping(r) ? SIZE_MAX
                        : zeroed_by_option   ? 256 * MIB
                                             : 2 * GIB;
    const size_t fitting = most / length_of(r);
    return fitting >= (size_t)count ? count : fitting > 2 ? (int)fitting : 2;
}

/* Blocks with mappings of their own are new memory, which costs nothing until it is touched. */
static void costs_little(const Request *r, int count) {
    const size_t length = has_own_mapping(r) ? 0 : length_of(r);
    within(at_start.memory, process_size().memory, KEPT_MEMORY + (size_t)count * length, "memory");
}

/* Up to `count` requests, all kept, and all freed. Returns the bits of the verdict. */
static int keep_and_free(const Request *r, int count) {
    char *blocks[COUNT];
    int verdict = 0;
    for (int i = 0; i < count; i++) {
        const int bit = (i == 0 ? 1 : 0) | (i == 1 ? 2 : 0) | (i == count - 1 ? 4 : 0);
        /* Once the size is refused, those in between need not ask. */
        blocks[i] = bit || (verdict & 1) ? take(r) : NULL;
        if (bit == 0)
            continue;
        if (blocks[i] != NULL) {
            use(r, blocks[i]);
            verdict |= bit;
        }
        if (i < 2)
            costs_little(r, i + 1);
        small_ones();
    }
    for (int odd = 0; odd < 2; odd++) {
        for (int i = odd; i < count; i += 2) {
            if (blocks[i] == NULL)
                continue;
            if (i < 2 || i == count - 1)
                is_used(r, blocks[i]);
            r->way->give(blocks[i], r->alignment);
        }
    }
    return verdict;
}

static int one_size(const Request *r, const char *before) {
    at_start = process_size();
    char *others[COUNT - 1] = {NULL};
    const int others_count = strcmp(before, "many") == 0 ? COUNT - 1 : 0;
    many_others(others, others_count);
    char *small = strcmp(before, "small") == 0 ? (char *)malloc(16) : NULL;
    const int count = count_of(r);
    int verdict = keep_and_free(r, count);
    char *again = take(r);
    if (again != NULL) {
        use(r, again);
        is_used(r, again);
        r->way->give(again, r->alignment);
        verdict |= 8;
    }
    const size_t length = length_of(r);
    const size_t retained = has_own_mapping(r) ? 0 : 3 * (size_t)count * length;
    const size_t addresses = at_start.addresses + retained;
    if (length < (size_t)1 << 47)
        within(addresses, process_size().addresses, KEPT_ADDRESSES + KEPT_MAPPINGS * length,
               "addresses");
    malloc_trim(0);
    const Size once = process_size();
    within(addresses, once.addresses, KEPT_ADDRESSES, "addresses after malloc_trim");
    costs_little(r, zeroed_by_option ? count : 2);
    for (int i = 0; i < AGAIN; i++) {
        char *block = take(r);
        if (block != NULL)
            r->way->give(block, r->alignment);
    }
    /* Caches keep a few shorter blocks that are aligned; glibc keeps others, too. */
    const size_t kept = has_own_mapping(r) ? 0 : is_mallard() ? r->alignment : length;
    malloc_trim(0);
    within(once.addresses, process_size().addresses, KEPT_ADDRESSES / 32 + AGAIN * kept,
           "addresses once more");
    small_ones();
    for (int i = 0; i < others_count; i++) {
        CHECK(others[i] == NULL || others[i][0] == (char)i);
        free(others[i]);
    }
    free(small);
    return verdict;
}

static void sizes_around(Request r, size_t power) {
    const size_t sizes[] = {power - PAGE, power - 1, power, power + 1, power + PAGE};
    for (int i = 0; i < 5; i++) {
        r.size = sizes[i];
        if (r.size > 0 && r.size <= power + PAGE)
            keep_and_free(&r, 2);
    }
}

/* Every size in one process, upwards and downwards. */
static int all_sizes(Request r) {
    at_start = process_size();
    at_start.memory += 512 * MIB; /* of freed blocks, which shorter ones left */
    for (int k = 0; k < 64; k++)
        sizes_around(r, (size_t)1 << k);
    for (size_t less = 0; less < 4 * PAGE; less = 2 * less + 1) {
        r.size = SIZE_MAX - less;
        CHECK(keep_and_free(&r, 2) == 0);
    }
    for (int k = 63; k >= 0; k--)
        sizes_around(r, (size_t)1 << k);
    small_ones();
    return 0;
}

/* ---- Where in the program ---- */

typedef struct {
    Request request;
    const char *before;
} Case;

static int run(const Case *c) {
    if (strcmp(c->before, "all") == 0)
        return VERDICT + all_sizes(c->request);
    return VERDICT + one_size(&c->request, c->before);
}

static void *run_in_thread(void *c) { return (void *)(intptr_t)run((const Case *)c); }

static int in_thread(const Case *c) {
    pthread_t thread;
    void *verdict;
    CHECK(pthread_create(&thread, NULL, run_in_thread, (void *)c) == 0);
    CHECK(pthread_join(thread, &verdict) == 0);
    small_ones();
    return (int)(intptr_t)verdict;
}

static int in_child(const Case *c) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        be_expendable(SECONDS_MAX);
        exit(run(c));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        kill(getpid(), WTERMSIG(status));
    small_ones();
    return WEXITSTATUS(status);
}

/* The parent has such a block when it forks, and so has the child. */
static int in_child_with_block(const Case *c) {
    char *block = take(&c->request);
    if (block != NULL)
        use(&c->request, block);
    const int verdict = in_child(c);
    if (block != NULL) {
        is_used(&c->request, block);
        c->request.way->give(block, c->request.alignment);
    }
    return verdict;
}

static sigjmp_buf jump;
static const Case *in_handler;
static char *taken_in_handler;

static void request_and_jump(int number) {
    (void)number;
    taken_in_handler = take(&in_handler->request);
    siglongjmp(jump, 1);
}

/* A handler on a stack of its own requests a block, and never returns. */
static int after_jump(const Case *c) {
    static char stack[1 << 16];
    stack_t on = {};
    on.ss_sp = stack;
    on.ss_size = sizeof stack;
    CHECK(sigaltstack(&on, NULL) == 0);
    struct sigaction action = {};
    action.sa_handler = request_and_jump;
    action.sa_flags = SA_ONSTACK;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    in_handler = c;
    if (sigsetjmp(jump, 1) == 0)
        raise(SIGUSR1);
    if (taken_in_handler != NULL) {
        use(&c->request, taken_in_handler);
        is_used(&c->request, taken_in_handler);
        c->request.way->give(taken_in_handler, c->request.alignment);
    }
    return run(c);
}

static void limit(int resource, size_t has) {
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = has + LIMIT + LIMIT_BESIDES;
    CHECK(setrlimit(resource, &limit) == 0);
    is_limited = 1;
}

static int with_limit_on_addresses(const Case *c) {
    limit(RLIMIT_AS, process_size().addresses);
    return run(c);
}

/* Counts what may be written, as the system does that never overcommits. */
static int with_limit_on_data(const Case *c) {
    limit(RLIMIT_DATA, process_size().data);
    return run(c);
}

static int with_late_limit(const Case *c) {
    char *block = take(&c->request);
    if (block != NULL)
        c->request.way->give(block, c->request.alignment);
    return with_limit_on_addresses(c);
}

static const struct {
    const char *name;
    int (*run)(const Case *);
} places[] = {
    {"plain", run},
    {"constructor", run},
    {"thread", in_thread},
    {"child", in_child},
    {"child_with_block", in_child_with_block},
    {"jump", after_jump},
    {"limit_on_addresses", with_limit_on_addresses},
    {"limit_on_data", with_limit_on_data},
    {"late_limit", with_late_limit},
};

static int run_named(char **arguments) {
    be_expendable(SECONDS_MAX);
    CHECK((getenv("REQUESTS_ON") != NULL) == is_mallard());
    const char *options = getenv("MALLOC_CONF");
    zeroed_by_option = is_mallard() && options != NULL && strstr(options, "zero:true") != NULL;
    if (is_mallard() && getenv("REQUESTS_HOOKS") != NULL) {
        extent_hooks_t *hooks = mapping_hooks();
        CHECK(mallctl("arena.0.extent_hooks", NULL, NULL, &hooks, sizeof hooks) == 0);
    }
    Case c = {{NULL, strtoul(arguments[4], NULL, 10), strtoul(arguments[5], NULL, 10)},
              arguments[2]};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, arguments[3]) == 0)
            c.request.way = &ways[i];
    CHECK(c.request.way != NULL);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(places[i].name, arguments[1]) == 0)
            return places[i].run(&c);
    CHECK(!"a known place");
    return 0;
}

__attribute__((constructor)) static void before_main(int count, char **arguments) {
    if (count == 6 && strcmp(arguments[1], "constructor") == 0)
        exit(run_named(arguments));
}

int main(int count, char **arguments) {
    CHECK(count == 6);
    return run_named(arguments);
}
