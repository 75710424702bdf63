/* Resident memory that a program freed or never wrote to. Each part prints one figure.
 *
 * aligned ALIGN SIZE COUNT: blocks that are written to in full; the resident memory, as a
 * percentage of the requested size.
 *
 * torn-down SIZE TIMES: 300 MiB of blocks, allocated and freed TIMES times by one thread, without a
 * call afterwards; their resident part, in MiB.
 *
 * sleepers THREADS KIB MIB: threads that allocate blocks of mixed sizes one after another, free all
 * of them and sleep; the resident memory, in MiB, once it is no more than MIB, or three minutes
 * later.
 *
 * untouched SLOTS ROUNDS: blocks of up to 2 MiB, each with one written word, freed by another
 * thread; the maximum resident memory, in MiB.
 *
 * expired SIZE ORDER EVERY ROUNDS PAUSE: 300 MiB of blocks, of which one thread frees all but one
 * in each EVERY bytes (0 for none), in ORDER (0 in the order of allocation, 1 backwards, 2 at
 * random), ROUNDS times with a pause of PAUSE ms between them; the resident part at the end, in
 * MiB.
 *
 * refilled SIZE ORDER ROUNDS: the same without pauses; the page faults from the second round on,
 * less those that a hundredth of the time pays for.
 *
 * waves THREADS ROUNDS: threads that make and exchange blocks; half of those that they keep live on
 * when they end, for ROUNDS times; the pages that went back and were taken again within a second,
 * less those that a hundredth of the time pays for. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "measured.h"

int mallctl(const char *, void *, size_t *, void *, size_t);
#pragma weak mallctl

static void *must(void *p) {
    if (!p) {
        fprintf(stderr, "there is no memory\n");
        exit(2);
    }
    return p;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static uint64_t seeded(uint64_t seed) { return seed * UINT64_C(0x9E3779B97F4A7C15) + 1; }

/* ---- aligned --------------------------------------------------------------------------------- */

static void aligned(size_t align, size_t size, size_t count) {
    const long before = (long)(resident() / 1024);
    for (size_t i = 0; i < count; i++) {
        void *block = NULL;
        if (posix_memalign(&block, align, size) || (uintptr_t)block % align)
            exit(4);
        memset(block, 1, size);
    }
    printf("%.0f\n", (double)((long)(resident() / 1024) - before) * 1024 * 100 /
                         ((double)size * (double)count));
}

/* ---- torn-down ------------------------------------------------------------------------------- */

static void torn_down(size_t size, size_t times) {
    const size_t count = ((size_t)300 << 20) / size;
    const long before = (long)(resident() / 1024);
    char **all = must(malloc(count * sizeof *all));
    while (times--) {
        for (size_t i = 0; i < count; i++)
            memset(all[i] = must(malloc(size)), 1, size);
        for (size_t i = 0; i < count; i++)
            free(all[i]);
    }
    free(all);
    printf("%ld\n", ((long)(resident() / 1024) - before) >> 10);
}

/* ---- sleepers -------------------------------------------------------------------------------- */

enum { BLOCKS = 100000 };
static pthread_barrier_t freed, over;
static size_t bytes_each;

/* An eighth each of 1 to 16 KiB and of 16 to 55 KiB, and small ones. */
static size_t mixed_size(uint64_t *state) {
    const uint64_t r = next(state), more = r >> 8;
    return r % 8 == 0 ? 1024 + more % 15360 : r % 8 == 1 ? 16384 + more % 40000 : 16 + more % 1000;
}

static void *sleeper(void *seed) {
    uint64_t state = seeded((uintptr_t)seed);
    char **own = must(malloc(BLOCKS * sizeof *own));
    size_t count = 0;
    for (size_t held = 0; held < bytes_each && count < BLOCKS; count++) {
        const size_t size = mixed_size(&state);
        memset(own[count] = must(malloc(size)), 1, size);
        held += size;
    }
    while (count)
        free(own[--count]);
    free(own);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&over);
    return NULL;
}

static void sleepers(size_t threads, long most_mib) {
    pthread_t *thread = must(malloc(threads * sizeof *thread));
    pthread_attr_t attributes;
    const long before = (long)(resident() / 1024);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_barrier_init(&freed, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&over, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&thread[i], &attributes, sleeper, (void *)(i + 1)))
            exit(5);
    pthread_barrier_wait(&freed);
    long mib = 0;
    for (int waited = 0; waited < 1800; waited++) {
        mib = ((long)(resident() / 1024) - before) >> 10;
        if (mib <= most_mib)
            break;
        usleep(100000);
    }
    printf("%ld\n", mib);
    pthread_barrier_wait(&over);
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
}

/* ---- untouched ------------------------------------------------------------------------------- */

static _Atomic(void *) *slots;
static size_t slot_count, rounds;
static atomic_bool is_over;

static void *frees(void *unused) {
    uint64_t state = seeded(99);
    while (!is_over)
        free(atomic_exchange(&slots[next(&state) % slot_count], NULL));
    return unused;
}

static void *makes(void *seed) {
    uint64_t state = seeded((uintptr_t)seed);
    for (size_t i = 0; i < rounds; i++) {
        const size_t size = sizeof(uint64_t) + next(&state) % (2 << 20);
        uint64_t *block = must(malloc(size));
        *(volatile uint64_t *)block = size;
        free(atomic_exchange(&slots[next(&state) % slot_count], block));
    }
    return NULL;
}

static void untouched(void) {
    pthread_t makers[2], freer;
    struct rusage usage;
    slots = must(calloc(slot_count, sizeof *slots));
    pthread_create(&freer, NULL, frees, NULL);
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&makers[i], NULL, makes, (void *)(i + 1));
    for (int i = 0; i < 2; i++)
        pthread_join(makers[i], NULL);
    is_over = true;
    pthread_join(freer, NULL);
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld\n", usage.ru_maxrss >> 10);
}

/* ---- expired, refilled ----------------------------------------------------------------------- */

enum { HEAP = 300 << 20 };

/* Memory for a table that is not the allocator's. */
static void *table_of(size_t bytes) {
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return must(table == MAP_FAILED ? NULL : table);
}

/* The numbers below `count` in one of the orders. */
static uint32_t *in_order(size_t count, size_t order) {
    uint32_t *numbers = table_of(count * sizeof *numbers);
    uint64_t state = seeded(7);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (uint32_t)(order == 1 ? count - 1 - i : i);
    for (size_t i = count; order == 2 && i-- > 1;) {
        const size_t other = next(&state) % (i + 1);
        const uint32_t number = numbers[i];
        numbers[i] = numbers[other], numbers[other] = number;
    }
    return numbers;
}

/* A byte in each page suffices. */
static void touch(char *block, size_t size) {
    for (size_t at = 0; at < size; at += 512)
        block[at] = 1;
}

static size_t block_size, block_count;
static char **blocks;
static uint32_t *numbers;

static void begin(size_t size, size_t order) {
    block_size = size, block_count = HEAP / size;
    blocks = table_of(block_count * sizeof *blocks);
    numbers = in_order(block_count, order);
}

static void fill_and_free(size_t every) {
    const size_t kept = every ? (every + block_size - 1) / block_size : 0;
    for (size_t i = 0; i < block_count; i++)
        if (!blocks[i])
            touch(blocks[i] = must(malloc(block_size)), block_size);
    for (size_t i = 0; i < block_count; i++) {
        const size_t number = numbers[i];
        if (kept && number % kept == 0)
            continue;
        free(blocks[number]);
        blocks[number] = NULL;
    }
}

static void expired(size_t every, size_t rounds, size_t pause) {
    const long before = (long)(resident() / 1024);
    for (size_t round = 0; round < rounds; round++) {
        if (round)
            usleep((useconds_t)(pause * 1000));
        fill_and_free(every);
    }
    printf("%ld\n", ((long)(resident() / 1024) - before) >> 10);
}

/* How many page faults a hundredth of the time pays for, at 3 microseconds each. */
static long affordable(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec * 10000 + now.tv_nsec / 100000) / 3;
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt - affordable();
}

/* By the allocator's own count: the faults of a heap that grows would hide these. */
static long retaken(void) {
    uint64_t epoch = 1, pages = 0;
    size_t size = sizeof epoch;
    if (mallctl("epoch", &epoch, &size, &epoch, size) ||
        mallctl("stats.arenas.4096.dirty_retaken", &pages, &size, NULL, 0))
        exit(6);
    return (long)pages - affordable();
}

static void refilled(size_t rounds) {
    /* The first round's memory may go back, and be taken again in the second. */
    long before = 0;
    for (size_t round = 0; round < rounds; round++) {
        if (round == 2)
            before = faults();
        fill_and_free(0);
    }
    printf("%ld\n", faults() - before);
}

/* ---- waves ----------------------------------------------------------------------------------- */

enum { WORKERS = 16, KEPT = 20000, SHARED = 512 };
static _Atomic(char *) shared[SHARED];
static char *kept[WORKERS][KEPT], *brief[WORKERS][KEPT];

static void *wave(void *seed) {
    const uintptr_t number = (uintptr_t)seed % WORKERS;
    uint64_t state = seeded((uintptr_t)seed);
    char **own = kept[number], **end = brief[number];
    for (size_t i = 0; i < KEPT; i++) {
        /* One to live on, one for another thread, and one that ends with the thread. */
        for (int use = 0; use < 3; use++) {
            const uint64_t r = next(&state);
            const size_t size = r % 200 ? 16 + (r >> 8) % 500 : 16 + (r >> 8) % 20000;
            char *block = must(malloc(size));
            touch(block, size);
            if (use == 0)
                free(own[i]), own[i] = block;
            else if (use == 1)
                free(atomic_exchange(&shared[r % SHARED], block));
            else
                end[i] = block;
        }
    }
    for (size_t i = 0; i < KEPT; i++) {
        free(end[i]);
        if (next(&state) & 1)
            free(own[i]), own[i] = NULL;
    }
    return NULL;
}

static void waves(size_t threads, size_t rounds) {
    long before = 0;
    for (size_t round = 0; round < rounds; round++) {
        pthread_t thread[WORKERS];
        if (round == 3)
            before = retaken();
        for (uintptr_t i = 0; i < threads; i++)
            if (pthread_create(&thread[i], NULL, wave, (void *)(round * WORKERS + i)))
                exit(5);
        for (size_t i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
    }
    printf("%ld\n", retaken() - before);
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";
    size_t number[5] = {0};
    for (int i = 2; i < argc && i < 7; i++)
        number[i - 2] = strtoul(argv[i], NULL, 0);
    if (!strcmp(part, "aligned")) {
        aligned(number[0], number[1], number[2]);
    } else if (!strcmp(part, "torn-down")) {
        torn_down(number[0], number[1]);
    } else if (!strcmp(part, "sleepers")) {
        bytes_each = number[1] << 10;
        sleepers(number[0], (long)number[2]);
    } else if (!strcmp(part, "untouched")) {
        slot_count = number[0], rounds = number[1];
        untouched();
    } else if (!strcmp(part, "expired")) {
        begin(number[0], number[1]);
        expired(number[2], number[3], number[4]);
    } else if (!strcmp(part, "refilled")) {
        begin(number[0], number[1]);
        refilled(number[2]);
    } else if (!strcmp(part, "waves")) {
        waves(number[0], number[1]);
    } else {
        return 1;
    }
    return 0;
}
