/* The program of `mallard soak`: a process that runs for hours in phases, beside a model of each
 * block that it has.
 *
 * A cycle has three phases: `growth` makes blocks beside those that stay, `churn` replaces them
 * again and again, and `rest` frees them. The work is done by threads that soon end, each on a part
 * of the table, so what one allocates another one frees. They use every function that the allocator
 * has, and verify each block. A fork a minute, and one in each cycle: the child verifies and frees
 * blocks, allocates, and ends. Options change from cycle to cycle. After each phase the process is
 * all but idle for twice its decay time and a second, and then prints a line:
 *
 *     phase growth 12.345678 ...     the fields are in `report`
 *
 * The live bytes of the model, by usable sizes, are printed beside what the allocator counts. */
#include "memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS, MIB, PHASE_MS, DECAY_MS, FORK_MS, THREADS, PARAMS };
static Param params[PARAMS] = {
    [SECONDS] = {"seconds", 3600, 1, 1000000},     [MIB] = {"mib", 32, 1, 4096},
    [PHASE_MS] = {"phase_ms", 20000, 10, 3600000}, [DECAY_MS] = {"decay_ms", 2000, 10, 600000},
    [FORK_MS] = {"fork_ms", 60000, 10, 3600000},   [THREADS] = {"threads", 4, 1, 64},
};

/* ---- every function of the allocator that is there --------------------------------------------
 */

static struct {
    void *(*mallocx)(size_t, int);
    void *(*rallocx)(void *, size_t, int);
    void (*dallocx)(void *, int);
    void (*sdallocx)(void *, size_t, int);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    void *(*new_)(size_t);
    void (*delete_)(void *);
    void (*delete_sized)(void *, size_t);
    void (*free_sized)(void *, size_t);
} calls;

static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static void find_calls(void) {
#define FIND(field, name) *(void **)&calls.field = find(name)
    FIND(mallctl, "mallctl");
    FIND(mallocx, "mallocx");
    FIND(rallocx, "rallocx");
    FIND(dallocx, "dallocx");
    FIND(sdallocx, "sdallocx");
    FIND(new_, "_Znwm");
    FIND(delete_, "_ZdlPv");
    FIND(delete_sized, "_ZdlPvm");
    FIND(free_sized, "free_sized");
#undef FIND
}

/* Sets a name if the allocator knows it. */
#define SET(name, type, value)                                                                     \
    do {                                                                                           \
        type new_value = (value);                                                                  \
        if (calls.mallctl)                                                                         \
            calls.mallctl(name, NULL, NULL, &new_value, sizeof new_value);                         \
    } while (0)

/* ---- the model ------------------------------------------------------------------------------- */

enum Kind { NONE, PLAIN, NEW, EXTENDED, ARENA };

typedef struct {
    unsigned char *bytes;
    uint32_t size;
    uint8_t kind;
    uint8_t tag;
    uint8_t lg_align;
} Slot;

/* In the table, slots up to `stay` are for the blocks that stay, and those behind for the rest. */
static Slot *table;
static size_t slots, stay;
static unsigned arena;
static uint64_t live_asked, live_usable, operations, made_threads, forks,
    draws = 88172645463325252u;
static const char *fault;

enum { CHUNK = 256, MARK = 16, ARENAS_ALL = 4096, TCACHE_NONE = 1 << 8, ZERO = 0x40 };

static int arena_flags(void) { return (int)((arena + 1) << 20) | TCACHE_NONE; }

static size_t some_size(uint64_t *random) {
    const uint64_t kind = random_size(random, 0, 999);
    if (kind < 800)
        return random_size(random, 1, 512);
    if (kind < 970)
        return random_size(random, 1, 16 << 10);
    if (kind < 998)
        return random_size(random, 1, 256 << 10);
    return random_size(random, 1, 2 << 20);
}
/* The mean of these sizes. */
enum { MEAN_BYTES = 8300 };

/* A block's first and last bytes, and one in each page. */
static void mark(const Slot *slot) {
    for (size_t i = 0; i < slot->size; i += i < MARK ? 1 : PAGE_BYTES)
        slot->bytes[i] = (unsigned char)(slot->tag + i / PAGE_BYTES);
    if (slot->size > MARK)
        slot->bytes[slot->size - 1] = slot->tag;
}

static void verify(const Slot *slot) {
    bool is_whole = slot->size <= MARK || slot->bytes[slot->size - 1] == slot->tag;
    for (size_t i = 0; i < slot->size && is_whole; i += i < MARK ? 1 : PAGE_BYTES)
        is_whole =
            i == slot->size - 1u || slot->bytes[i] == (unsigned char)(slot->tag + i / PAGE_BYTES);
    if (!is_whole)
        fail("a block has lost its content", "the allocator handed it out twice, or wrote to it");
}

/* What a thread did to the live bytes. */
typedef struct {
    int64_t asked, usable;
    uint64_t operations, random;
} Sum;

static void count(Sum *sum, const Slot *slot, int sign) {
    sum->asked += sign * (int64_t)slot->size;
    sum->usable += sign * (int64_t)malloc_usable_size(slot->bytes);
    sum->operations++;
}

static void take(Slot *slot, Sum *sum) {
    const uint64_t draw = random_next(&sum->random) >> 20;
    void *bytes = NULL;
    slot->size = (uint32_t)some_size(&sum->random);
    slot->tag = (uint8_t)draw;
    slot->kind = PLAIN;
    slot->lg_align = 0;
    switch (draw / 256 % 8) {
    case 0:
        bytes = calloc(1, slot->size);
        for (size_t i = 0; bytes && i < slot->size; i += 61)
            if (((unsigned char *)bytes)[i])
                fail("calloc", "a byte is not zero");
        break;
    case 1:
        slot->lg_align = (uint8_t)(4 + draw / 2048 % 9);
        if (posix_memalign(&bytes, (size_t)1 << slot->lg_align, slot->size))
            bytes = NULL;
        break;
    case 2:
        slot->kind = NEW;
        bytes = calls.new_ ? calls.new_(slot->size) : (slot->kind = PLAIN, malloc(slot->size));
        break;
    case 3:
        slot->kind = calls.mallocx ? EXTENDED : PLAIN;
        bytes = calls.mallocx ? calls.mallocx(slot->size, draw & 1 << 19 ? ZERO : 0)
                              : malloc(slot->size);
        break;
    case 4:
        slot->kind = calls.mallocx && arena ? ARENA : PLAIN;
        bytes = slot->kind == ARENA ? calls.mallocx(slot->size, arena_flags()) : malloc(slot->size);
        break;
    default:
        bytes = malloc(slot->size);
    }
    slot->bytes = must(bytes);
    if ((uintptr_t)bytes & (((uintptr_t)1 << slot->lg_align) - 1))
        fail("posix_memalign", "the block is not aligned");
    mark(slot);
    count(sum, slot, 1);
}

static void give(Slot *slot, Sum *sum) {
    verify(slot);
    count(sum, slot, -1);
    const bool is_other_way = random_next(&sum->random) >> 40 & 1;
    if (slot->kind == NEW && is_other_way && calls.delete_sized)
        calls.delete_sized(slot->bytes, slot->size);
    else if (slot->kind == NEW)
        calls.delete_(slot->bytes);
    else if (slot->kind == EXTENDED && is_other_way)
        calls.sdallocx(slot->bytes, slot->size, 0);
    else if (slot->kind == ARENA)
        calls.dallocx(slot->bytes, TCACHE_NONE);
    else if (slot->kind == PLAIN && is_other_way && !slot->lg_align && calls.free_sized)
        calls.free_sized(slot->bytes, slot->size);
    else
        free(slot->bytes);
    slot->kind = NONE;
}

static void resize(Slot *slot, Sum *sum) {
    if (slot->kind == NEW)
        return;
    verify(slot);
    count(sum, slot, -1);
    const uint32_t before = slot->size;
    slot->size = (uint32_t)some_size(&sum->random);
    void *bytes = slot->kind == EXTENDED ? calls.rallocx(slot->bytes, slot->size, 0)
                  : slot->kind == ARENA  ? calls.rallocx(slot->bytes, slot->size, arena_flags())
                                         : realloc(slot->bytes, slot->size);
    slot->bytes = must(bytes);
    slot->lg_align = 0;
    for (size_t i = 0; i < MARK && i + 1 < before && i < slot->size; i++)
        if (slot->bytes[i] != slot->tag)
            fail("realloc", "a block has lost its content");
    mark(slot);
    count(sum, slot, 1);
}

/* ---- threads that work on a part of the table -------------------------------------------------
 */

typedef enum { FILL, CHURN, EMPTY } Work;
typedef struct {
    Work work;
    size_t from, to;
    Sum sum;
} Part;

static void *part_main(void *argument) {
    Part *part = (Part *)argument;
    for (size_t i = part->from; i < part->to; i++) {
        Slot *slot = &table[i];
        if (part->work == EMPTY ? slot->kind != NONE : slot->kind == NONE) {
            part->work == EMPTY ? give(slot, &part->sum) : take(slot, &part->sum);
        } else if (part->work == CHURN) {
            if (random_next(&part->sum.random) >> 40 & 3) {
                give(slot, &part->sum);
                take(slot, &part->sum);
            } else {
                resize(slot, &part->sum);
            }
        }
    }
    return NULL;
}

static void expect_end(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid", strerror(errno));
    if (status)
        fail("the child of a fork", "it did not end well, or hung");
}

/* While threads work on other parts. */
static void fork_beside(size_t from, size_t to) {
    const pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    if (child == 0) {
        alarm(120);
        Part part = {EMPTY, from, to, {.random = draws}};
        part_main(&part);
        part.work = FILL;
        part_main(&part);
        pthread_t thread;
        if (pthread_create(&thread, NULL, part_main, &part) || pthread_join(thread, NULL))
            _exit(3);
        _exit(0);
    }
    expect_end(child);
    forks++;
}

/* Does the work on these slots, once, by threads that have a part each. */
static void run_parts(Work work, size_t from, size_t to, bool forks_too) {
    pthread_t threads[64];
    Part parts[64];
    const size_t together = params[THREADS].value;
    for (size_t at = from; at < to;) {
        size_t n = 0;
        for (; n < together && at < to; n++) {
            const size_t end = at + CHUNK < to ? at + CHUNK : to;
            parts[n] = (Part){work, at, end, {.random = random_seed(random_next(&draws))}};
            const int error = pthread_create(&threads[n], NULL, part_main, &parts[n]);
            if (error)
                fail("cannot start a thread", strerror(error));
            at = end;
        }
        if (forks_too && at < to) {
            fork_beside(at, at + CHUNK < to ? at + CHUNK : to);
            forks_too = false;
        }
        for (size_t i = 0; i < n; i++) {
            pthread_join(threads[i], NULL);
            live_asked += (uint64_t)parts[i].sum.asked;
            live_usable += (uint64_t)parts[i].sum.usable;
            operations += parts[i].sum.operations;
        }
        made_threads += n;
    }
}

/* ---- phases ---------------------------------------------------------------------------------- */

static double began, forked;

static double elapsed(void) { return now() - began; }

static bool is_fork_due(void) {
    if ((elapsed() - forked) * 1000 < (double)params[FORK_MS].value)
        return false;
    forked = elapsed();
    return true;
}

static void *passing_main(void *unused) {
    void *blocks[64];
    for (size_t i = 0; i < 64; i++)
        blocks[i] = must(malloc(16 + i * 100));
    for (size_t i = 0; i < 64; i++)
        free(blocks[i]);
    return unused;
}

/* All but idle: without a background thread, memory is given back in passing, such as by a thread
 * that ends. */
static void idle(double seconds) {
    for (const double end = now() + seconds; now() < end; usleep(10000)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, passing_main, NULL) || pthread_join(thread, NULL))
            fail("cannot start a thread", strerror(errno));
    }
}

static uint64_t number_after(const char *file, const char *name) {
    char text[8192];
    const int at = open(file, O_RDONLY | O_CLOEXEC);
    const ssize_t n = at < 0 ? -1 : read(at, text, sizeof text - 1);
    close(at);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *found = strstr(text, name);
    return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

static uint64_t mappings(void) {
    static char text[65536];
    uint64_t lines = 0;
    const int at = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; (n = read(at, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    close(at);
    return lines;
}

/* A figure of the allocator's own, or -1. */
static long long statistic(const char *name) {
    size_t value = 0, length = sizeof value;
    if (!calls.mallctl || calls.mallctl(name, &value, &length, NULL, 0))
        return -1;
    return (long long)value;
}

static void report(const char *name, uint64_t decay_ms) {
    SET("thread.tcache.flush", uint64_t, 0);
    if (calls.mallctl)
        calls.mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    SET("epoch", uint64_t, 1);
    printf("phase %s %.3f %llu %llu %lld %llu %lld %llu %llu %llu %llu %llu %llu\n", name,
           elapsed(), (unsigned long long)live_asked, (unsigned long long)live_usable,
           statistic("stats.allocated"),
           (unsigned long long)(number_after("/proc/self/smaps_rollup", "Rss:") * 1024),
           statistic("stats.metadata"), (unsigned long long)mappings(),
           (unsigned long long)number_after("/proc/self/status", "Threads:"),
           (unsigned long long)forks, (unsigned long long)operations,
           (unsigned long long)made_threads, (unsigned long long)decay_ms);
    fflush(stdout);
}

static void settle(const char *name, uint64_t decay_ms) {
    idle(2 * (double)decay_ms / 1000 + 1);
    report(name, decay_ms);
}

/* Another set of options for each cycle. Returns the decay time. */
static uint64_t change_options(uint64_t cycle) {
    const uint64_t decay_ms = params[DECAY_MS].value >> cycle % 2;
    SET("arenas.dirty_decay_ms", ssize_t, (ssize_t)decay_ms);
    SET("arenas.muzzy_decay_ms", ssize_t, 0);
    const size_t arenas = (size_t)statistic("arenas.narenas");
    for (size_t i = 0; calls.mallctl && i < arenas && i < ARENAS_ALL; i++) {
        char name[64];
        snprintf(name, sizeof name, "arena.%zu.dirty_decay_ms", i);
        SET(name, ssize_t, (ssize_t)decay_ms);
    }
    SET("background_thread", bool, cycle % 3 == 1);
    SET("thread.tcache.enabled", bool, cycle % 4 != 3);
    if (calls.mallctl && cycle % 5 == 4)
        calls.mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
    return decay_ms;
}

/* Blocks that the model does not know, or bytes that are not its own: only the test asks for it. */
static void misbehave(void) {
    if (!fault)
        return;
    if (strcmp(fault, "leak") == 0)
        for (int i = 0; i < 100; i++)
            stamp(must(malloc(1000)), 1000);
    else if (strcmp(fault, "overwrite") == 0)
        table[stay / 2].bytes[0]++;
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    find_calls();
    fault = getenv("MALLARD_SOAK_FAULT");
    stay = (params[MIB].value << 20) / MEAN_BYTES;
    slots = 4 * stay;
    table = (Slot *)map_memory(slots * sizeof *table);
    memset(table, 0, slots * sizeof *table);
    if (calls.mallctl) {
        size_t length = sizeof arena;
        if (calls.mallctl("arenas.create", &arena, &length, NULL, 0))
            arena = 0;
    }
    free(must(malloc(1)));
    print_provider("malloc");
    print_provider("free");
    fflush(stdout);
    began = now();
    report("start", 0);
    run_parts(FILL, 0, stay, false);
    const double end = (double)params[SECONDS].value,
                 phase_s = (double)params[PHASE_MS].value / 1000;
    for (uint64_t cycle = 0; elapsed() < end; cycle++) {
        const uint64_t decay_ms = change_options(cycle);
        run_parts(FILL, stay, slots, is_fork_due());
        settle("growth", decay_ms);
        const double until = elapsed() + phase_s;
        do
            run_parts(CHURN, stay, slots, is_fork_due() || elapsed() + phase_s >= until);
        while (elapsed() < until);
        settle("churn", decay_ms);
        run_parts(EMPTY, stay, slots, is_fork_due());
        misbehave();
        run_parts(CHURN, 0, stay, false);
        settle("rest", decay_ms);
    }
    run_parts(EMPTY, 0, stay, false);
    print_result(elapsed(), operations);
    return 0;
}
