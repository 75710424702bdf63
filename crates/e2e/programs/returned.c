/* Resident memory that a program freed or never wrote to. Each part prints one figure.
 *
 *     aligned ALIGN SIZE COUNT   blocks that are written to in full: the resident memory, as a
 *                                percentage of the requested size
 *     torn-down SIZE TIMES       300 MiB of blocks, allocated and freed TIMES times by one thread,
 *                                without a call afterwards: their resident part, in MiB
 *     sleepers THREADS KIB MIB   threads that allocate blocks of mixed sizes one after another,
 * free all of them and sleep: the resident memory, in MiB, once it is no more than MIB, or three
 * minutes later untouched SLOTS ROUNDS     blocks of up to 2 MiB, each with one written word, freed
 * by another thread: the maximum resident memory, in MiB */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void *must(void *p) {
    if (!p) {
        fprintf(stderr, "there is no memory\n");
        exit(2);
    }
    return p;
}

static long resident_kib(void) {
    long pages = 0;
    char text[128];
    FILE *file = must(fopen("/proc/self/statm", "r"));
    if (!fgets(text, sizeof text, file) || sscanf(text, "%*d %ld", &pages) != 1)
        exit(3);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static uint64_t seeded(uint64_t seed) {
    return seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

/* ---- aligned --------------------------------------------------------------------------------- */

static void aligned(size_t align, size_t size, size_t count) {
    const long before = resident_kib();
    for (size_t i = 0; i < count; i++) {
        void *block = NULL;
        if (posix_memalign(&block, align, size) || (uintptr_t)block % align)
            exit(4);
        memset(block, 1, size);
    }
    printf("%.0f\n",
           (double)(resident_kib() - before) * 1024 * 100 / ((double)size * (double)count));
}

/* ---- torn-down ------------------------------------------------------------------------------- */

static void torn_down(size_t size, size_t times) {
    const size_t count = ((size_t)300 << 20) / size;
    const long before = resident_kib();
    char **blocks = must(malloc(count * sizeof *blocks));
    while (times--) {
        for (size_t i = 0; i < count; i++)
            memset(blocks[i] = must(malloc(size)), 1, size);
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
    free(blocks);
    printf("%ld\n", (resident_kib() - before) >> 10);
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
    char **blocks = must(malloc(BLOCKS * sizeof *blocks));
    size_t count = 0;
    for (size_t held = 0; held < bytes_each && count < BLOCKS; count++) {
        const size_t size = mixed_size(&state);
        memset(blocks[count] = must(malloc(size)), 1, size);
        held += size;
    }
    while (count)
        free(blocks[--count]);
    free(blocks);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&over);
    return NULL;
}

static void sleepers(size_t threads, long most_mib) {
    pthread_t *thread = must(malloc(threads * sizeof *thread));
    pthread_attr_t attributes;
    const long before = resident_kib();
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
        mib = (resident_kib() - before) >> 10;
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

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";
    size_t number[3] = {0};
    for (int i = 2; i < argc && i < 5; i++)
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
    } else {
        return 1;
    }
    return 0;
}
