/* The background thread from a program's point of view: when it exists, what it returns, that it
 * sleeps, and that it does not disturb a fork or the end of the program. The argument selects the
 * part. Waits have a limit that only a failure reaches, and nothing here allocates implicitly. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "malloc_more.h"
#include "measured.h"

enum { THREADS = 4, BLOCK = 256, BLOCKS = 128 * 1024, KEPT = BLOCKS / 8, LIMIT_MS = 180000 };

static void pause_ms(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* The text of a file, in a buffer that the next call overwrites; empty if there is no such file. */
static const char *text_of(const char *path) {
    static char text[4096];
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, sizeof text - 1);
        close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* Whether a thread of the process is gone, or in the kernel's code for its end, where it executes
 * nothing of the program's any more. A thread enters that before whoever joins it goes on, but
 * leaves it, and the list of threads, only when it gets a CPU. */
static int has_ended(long id) {
    enum { EXITING = 4 }; /* The kernel's PF_EXITING. */
    char path[64];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", id);
    const char *at = strrchr(text_of(path), ')');
    return at == NULL || sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
           (flags & EXITING);
}

/* The number of the process's threads, and the id of the background thread or 0. */
static int tasks(long *background) {
    char entries[8192];
    int count = 0, fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n;
    CHECK(fd >= 0);
    *background = 0;
    while ((n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
        for (long at = 0; at < n; at += *(unsigned short *)(entries + at + 16)) {
            long id = atol(entries + at + 19);
            char path[64];
            /* The C library blocks the signals of a thread that ends, too. */
            if (id == 0 || has_ended(id))
                continue;
            count++;
            /* Of the others only the background thread blocks the program's signals. */
            snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
            const char *mask = strstr(text_of(path), "\nSigBlk:");
            if (mask != NULL && strtoull(mask + 8, NULL, 16) >> (SIGTERM - 1) & 1)
                *background = id;
        }
    }
    close(fd);
    return count;
}

static long background(void) {
    long id;
    tasks(&id);
    return id;
}

static long switches(long id) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
    const char *at = strstr(text_of(path), "\nvoluntary_ctxt_switches:");
    CHECK(at != NULL);
    return atol(at + strlen("\nvoluntary_ctxt_switches:"));
}

#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        int waited = 0;                                                                            \
        while (!(condition)) {                                                                     \
            CHECK(#condition && (waited += 20) < LIMIT_MS);                                        \
            pause_ms(20);                                                                          \
        }                                                                                          \
    } while (0)

/* Threads that hold much memory, then an eighth of it, and then sleep until released. They allocate
 * the kept eighth first. Otherwise the scheduler would decide how much memory that one thread frees
 * lies next to memory that another keeps. */
static pthread_barrier_t kept, full, freed, over;

static void *hold(void *unused) {
    char **blocks = malloc(BLOCKS * sizeof *blocks);
    CHECK(blocks);
    for (int i = 0; i < BLOCKS; i++) {
        if (i == KEPT)
            pthread_barrier_wait(&kept);
        CHECK(blocks[i] = malloc(BLOCK));
        memset(blocks[i], 1, BLOCK);
    }
    pthread_barrier_wait(&full);
    for (int i = KEPT; i < BLOCKS; i++)
        free(blocks[i]);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&over);
    for (int i = 0; i < KEPT; i++)
        free(blocks[i]);
    free(blocks);
    return unused;
}

static pthread_t threads[THREADS];

static void peak(void) {
    pthread_barrier_init(&kept, NULL, THREADS);
    pthread_barrier_init(&full, NULL, THREADS + 1);
    pthread_barrier_init(&freed, NULL, THREADS + 1);
    pthread_barrier_init(&over, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, hold, NULL) == 0);
    pthread_barrier_wait(&full);
    pthread_barrier_wait(&freed);
}

static void join(void) {
    pthread_barrier_wait(&over);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* A peak with the background thread. One that ended soon after its start is not started again at
 * once, so peaks go by until it is. */
static void peak_beside_background(void) {
    for (int tries = 0;; tries++) {
        peak();
        if (background() != 0)
            return;
        CHECK(tries < 1000);
        join();
        pause_ms(10);
    }
}

/* The program's own memory: the pointer arrays and blocks, and room for stacks, records and a few
 * caches, or for a sparsely used huge page. */
static long expected_kib(long before) {
    const long live = THREADS * (KEPT * (long)BLOCK + BLOCKS * (long)sizeof(char *)) / 1024;
    return before + live + live / 10 + 2048;
}

static void print_curve(long before) {
    struct timespec start, now;
    long peak_kib = (long)(resident() / 1024);
    clock_gettime(CLOCK_MONOTONIC, &start);
    dprintf(1, "%ld KiB before, %ld at the peak, %ld expected\n", before, peak_kib,
            expected_kib(before));
    for (int step = 0; step < 30; step++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        dprintf(1, "%5.2f s %8ld KiB\n",
                (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9,
                (long)(resident() / 1024));
        pause_ms(100);
    }
}

/* The background thread soon falls asleep and stays asleep. */
static void wait_until_nothing_wakes_up(void) {
    long id = background();
    for (int tries = 0;; tries++) {
        long then = switches(id);
        pause_ms(1500);
        if (switches(id) == then)
            break;
        CHECK(tries < 20);
    }
}

/* All threads sleep after the peak: the memory is returned, and then nothing wakes up again. */
static void idle(void) {
    long before = (long)(resident() / 1024);
    peak_beside_background();
    if (getenv("CURVE"))
        print_curve(before);
    WAIT_FOR((long)(resident() / 1024) <= expected_kib(before));
    wait_until_nothing_wakes_up();
    /* It wakes up when memory is freed again. */
    join();
    WAIT_FOR((long)(resident() / 1024) <= before + 8192);
}

/* Only the first thread exists: the background thread has ended before the last join came back. */
static void alone_at_once(void) {
    long id;
    CHECK(tasks(&id) == 1 && id == 0);
}

/* The process becomes single-threaded again, in the kernel's view too. */
static void ends(void) {
    for (int i = 0; i < 8; i++) {
        peak_beside_background();
        join();
        alone_at_once();
    }
    CHECK(unshare(CLONE_FS) == 0);
    peak_beside_background();
    join();
}

static void forks(void) {
    long id;
    peak_beside_background();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(tasks(&id) == 1 && id == 0);
        void *block = malloc(100);
        CHECK(block != NULL);
        free(block);
        /* The child gets a background thread when it has other threads. */
        peak_beside_background();
        join();
        alone_at_once();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(background() != 0);
    join();
}

/* There is no background thread, whatever is freed. */
static void alone(void) {
    long id;
    for (int i = 0; i < 2000; i++) {
        char *block = malloc(i % 100 ? 1 << 16 : 32 << 20);
        CHECK(block);
        memset(block, 1, 1 << 16);
        free(block);
    }
    CHECK(tasks(&id) == 1 && id == 0);
}

/* There is a background thread although the program has only one, and the program ends with it. */
static void always(void) {
    long id;
    for (int i = 0; i < 200; i++)
        free(malloc(32 << 20));
    WAIT_FOR(tasks(&id) == 2 && id != 0);
}

/* There are other threads but no background thread. */
static void off(void) {
    long id;
    peak();
    CHECK(tasks(&id) == THREADS + 1 && id == 0);
    join();
}

/* At any moment at most the cap of 16 MiB stays, plus the contents of caches, whatever is freed. */
static void cap(void) {
    enum { COUNT = 4096, SIZE = 64 * 1024, ALLOWED = (16 + 8) * 1024 };
    static char *blocks[COUNT];
    long before = (long)(resident() / 1024);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            CHECK(blocks[i] = malloc(SIZE));
            memset(blocks[i], 1, SIZE);
        }
        for (int i = 0; i < COUNT; i++) {
            free(blocks[i]);
            long live = (long)(COUNT - 1 - i) * (SIZE / 1024);
            if (i % 16 == 0)
                CHECK((long)(resident() / 1024) <= before + live + ALLOWED);
        }
    }
}

/* The first thread leaves. The process ends with the last of the program's threads, whose
 * destructor allocates after its cache has ended. */
static pthread_key_t key;

static void allocate(void *unused) {
    (void)unused;
    for (int i = 0; i < 20000; i++)
        free(malloc((size_t)i % 5000));
}

static void *outlive(void *unused) {
    pause_ms(200);
    free(malloc(100));
    CHECK(pthread_setspecific(key, "a value") == 0);
    return unused;
}

static void leaves(void) {
    pthread_t last;
    CHECK(pthread_key_create(&key, allocate) == 0);
    peak_beside_background();
    join();
    CHECK(pthread_create(&last, NULL, outlive, NULL) == 0);
    pthread_exit(NULL);
}

/* One of every eight blocks stays, so that hardly any slab becomes free. */
enum { LARGER = 6000, MANY = 8192, EVERY = 8 };
static char *scattered[MANY];

/* The KiB of the pages of the blocks that stay. */
enum { STAY_KIB = MANY / EVERY * ((LARGER + 2 * 4096 - 2) / 4096) * 4 };

static void *scatter(void *unused) {
    for (int i = 0; i < MANY; i++) {
        CHECK(scattered[i] = malloc(LARGER));
        memset(scattered[i], i % 251, LARGER);
    }
    for (int i = 0; i < MANY; i++)
        if (i % EVERY != 0)
            free(scattered[i]);
    return unused;
}

static void expect_scattered(void) {
    for (int i = 0; i < MANY; i += EVERY)
        for (int at = 0; at < LARGER; at++)
            CHECK((unsigned char)scattered[i][at] == i % 251);
}

/* One thread leaves scattered blocks and another sleeps. The memory between them is returned. */
static void between(void) {
    pthread_t thread;
    long before = (long)(resident() / 1024);
    peak();
    CHECK(pthread_create(&thread, NULL, scatter, NULL) == 0 && pthread_join(thread, NULL) == 0);
    WAIT_FOR((long)(resident() / 1024) <= expected_kib(before) + STAY_KIB);
    wait_until_nothing_wakes_up();
    expect_scattered();
    for (int i = 0; i < MANY; i += EVERY)
        free(scattered[i]);
    scatter(NULL);
    expect_scattered();
    join();
}

/* The same immediately, through malloc_trim, while another thread forks. */
static volatile int trimming = 1;

static void *fork_and_allocate(void *unused) {
    int status;
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            static char *blocks[4000];
            for (int b = 0; b < 4000; b++) {
                CHECK(blocks[b] = malloc(LARGER));
                memset(blocks[b], 1, LARGER);
            }
            expect_scattered();
            for (int b = 0; b < 4000; b++)
                free(blocks[b]);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    trimming = 0;
    return unused;
}

static void trims(void) {
    pthread_t thread;
    long before = (long)(resident() / 1024);
    scatter(NULL);
    /* Where pages decay, some or all of it may have gone back meanwhile. */
    const int decays = strstr(getenv("MALLOC_CONF"), "dirty_decay_ms:-1") == NULL;
    CHECK(decays || (long)(resident() / 1024) > before + MANY * (LARGER / 1024) / 2);
    CHECK(malloc_trim(0) == 1 || decays);
    CHECK((long)(resident() / 1024) <= before + STAY_KIB + 2048);
    expect_scattered();
    CHECK(pthread_create(&thread, NULL, fork_and_allocate, NULL) == 0);
    while (trimming) {
        for (int i = 1; i < MANY; i += EVERY)
            scattered[i] = malloc(LARGER);
        for (int i = 1; i < MANY; i += EVERY) {
            memset(scattered[i], 1, LARGER);
            free(scattered[i]);
        }
        malloc_trim(0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    expect_scattered();
}

/* A thread that is pinned to one CPU, with real-time priority if permitted, does not create a
 * background thread. The first thread creates it, with its own CPUs. */
static int cpus_of(long id) {
    cpu_set_t cpus;
    CHECK(sched_getaffinity((pid_t)id, sizeof cpus, &cpus) == 0);
    return CPU_COUNT(&cpus);
}

static pthread_barrier_t worked;

static void *work_pinned(void *unused) {
    static char *blocks[1000];
    cpu_set_t all, one;
    struct sched_param priority = {.sched_priority = 1};
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    /* By number: the functions of musl do nothing. */
    syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &priority);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++)
            CHECK(blocks[i] = malloc(1000 + (size_t)i * 30));
        for (int i = 0; i < 1000; i++)
            free(blocks[i]);
    }
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&over);
    return unused;
}

/* The pinned thread leaves the background thread to others for a second. If the machine stalls for
 * that long, it may create it after all, and it is done again. */
static int pinned_in_time(long all) {
    enum { SOON_MS = 900 };
    pthread_t thread;
    const long begun = now_ms();
    /* This thread gets a cache, which not every C library's pthread_create gives it. */
    free(malloc(1));
    pthread_barrier_init(&worked, NULL, 2);
    pthread_barrier_init(&over, NULL, 2);
    CHECK(pthread_create(&thread, NULL, work_pinned, NULL) == 0);
    pthread_barrier_wait(&worked);
    const int in_time = now_ms() - begun < SOON_MS;
    for (int i = 0; background() == 0; i++) {
        CHECK(i < 1000);
        void *block = malloc((size_t)1 << 20);
        CHECK(block);
        free(block);
        pause_ms(10); /* one that ended soon after its start is not started again at once */
    }
    if (in_time)
        CHECK(cpus_of(background()) == all &&
              syscall(SYS_sched_getscheduler, background()) == SCHED_OTHER);
    pthread_barrier_wait(&over);
    CHECK(pthread_join(thread, NULL) == 0);
    alone_at_once();
    return in_time;
}

static void pinned(void) {
    long all = cpus_of(0);
    if (all == 1)
        return;
    char *big = malloc(8 << 20);
    CHECK(big);
    memset(big, 1, 8 << 20);
    for (int tries = 0; !pinned_in_time(all); tries++)
        CHECK(tries < 100);
}

int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static void set_background(_Bool on) {
    CHECK(mallctl("background_thread", NULL, NULL, &on, sizeof on) == 0);
}

static _Bool is_on(void) {
    _Bool on;
    size_t size = sizeof on;
    CHECK(mallctl("background_thread", &on, &size, NULL, 0) == 0);
    return on;
}

static volatile _Bool loaded;

/* Blocks of many sizes, each with its own number at both ends. */
static void *load(void *seed) {
    enum { HELD = 512 };
    static __thread struct {
        unsigned char *block;
        size_t size;
    } held[HELD];
    unsigned next = (unsigned)(size_t)seed;
    pthread_barrier_wait(&full);
    while (__atomic_load_n(&loaded, __ATOMIC_RELAXED)) {
        next = next * 1103515245 + 12345;
        unsigned at = next >> 8 & (HELD - 1);
        if (held[at].block) {
            CHECK(held[at].block[0] == (unsigned char)at);
            CHECK(held[at].block[held[at].size - 1] == (unsigned char)at);
            free(held[at].block);
        }
        held[at].size = 1 + (next >> 17 & 7 ? next >> 20 & 1023 : next >> 13 & 0x1ffff);
        CHECK(held[at].block = malloc(held[at].size));
        held[at].block[0] = held[at].block[held[at].size - 1] = (unsigned char)at;
    }
    for (unsigned i = 0; i < HELD; i++)
        free(held[i].block);
    return NULL;
}

static void *switch_it(void *unused) {
    for (int i = 0; i < 1000; i++)
        set_background(i & 1);
    return unused;
}

/* Switched on and off a thousand times under load: by one thread, where each switch holds at once,
 * by two at the same time, and in the child of a fork. */
static void switched(void) {
    enum { WORKERS = 3 };
    pthread_t workers[WORKERS], other;
    long id;
    loaded = 1;
    pthread_barrier_init(&full, NULL, WORKERS + 1);
    for (size_t i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i], NULL, load, (void *)(i + 1)) == 0);
    /* A thread that begins has the signals blocked, too. */
    pthread_barrier_wait(&full);
    for (int i = 0; i < 1000; i++) {
        set_background(1);
        CHECK(is_on());
        set_background(0);
        CHECK(!is_on() && (i % 10 != 0 || background() == 0));
    }
    CHECK(pthread_create(&other, NULL, switch_it, NULL) == 0);
    switch_it(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    set_background(1);
    CHECK(is_on());
    /* It has blocked the signals once it runs. */
    WAIT_FOR(background() != 0);
    CHECK(tasks(&id) == WORKERS + 2);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            set_background(i & 1), set_background(0);
        _exit(background() == 0 && tasks(&id) == 1 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    set_background(0);
    CHECK(!is_on() && tasks(&id) == WORKERS + 1);
    loaded = 0;
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"idle", idle},   {"ends", ends},     {"forks", forks},
                 {"alone", alone}, {"always", always}, {"off", off},
                 {"cap", cap},     {"leaves", leaves}, {"between", between},
                 {"trims", trims}, {"pinned", pinned}, {"switched", switched}};
    CHECK(argc == 2);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            parts[i].run();
            return 0;
        }
    }
    CHECK(!"a part that there is");
}
