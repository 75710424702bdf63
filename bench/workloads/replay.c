/* replay: does what a recorded program did with malloc and free, from a plan that `mallard trace
 * compile` made (crates/trace/src/plan). The head of that module describes the file.
 *
 * Each recorded thread is a thread here. A block's address lies in a slot from its allocation to
 * its free. Threads wait for each other only where a block changes hands: a thread that frees a
 * block of another waits until its slot is filled, and a thread that uses a slot again which
 * another has freed waits until the block before it has left. And no thread runs more than a window
 * of recorded time ahead of the slowest, because a thread that runs ahead changes what is live
 * together.
 *
 * Nothing here comes from malloc but the blocks of the plan: slots, lanes and buffers are mapped.
 *
 *     replay plan=FILE [speed=0] [window=0] [touch=1] [pollute=0] [none=0]
 *
 * speed: hundredths of the recorded time; 0 is as fast as possible. window: microseconds;
 * 0 is four ticks of the plan, which is a millisecond or less. touch: 0
 * nothing, 1 a byte in each page that the program touched, 2 the first byte, 3 every byte. pollute:
 * bytes of a buffer of its own that each thread writes whenever it has waited. none: no allocator;
 * all else is done, so that its time and memory are what the replay itself costs.
 *
 * With a speed it also prints its resident memory at a hundred points of the recorded time, as
 * lines `curve SECONDS BYTES`. */
#include "memory.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* ---- the plan -------------------------------------------------------------------------------- */

enum { HEAD_WORDS = 512, POINTS = 100, TIMES_AT = 128 };
#define PLAN_MAGIC UINT64_C(0x02006e616c706d00)

typedef struct {
    uint64_t magic, threads, lanes, slots, span_us, operations, tick_us, table_at, peak;
} Head;

typedef struct {
    uint64_t at, words, lane, first_us;
} Stream;

enum { CONTROL, MALLOC, CALLOC, REALLOC, FREE, SIZED_FREE, LONG, QUERY };
enum { NOTHING, TICK, SPAWN, END, TRIM };
enum { LONG_MALLOC, LONG_CALLOC, LONG_ALIGNED };

static int plan_file;
static Head head;
static Stream *streams;

/* ---- what threads share ---------------------------------------------------------------------- */

typedef struct {
    _Alignas(128) _Atomic uint64_t
        place; /* recorded time of what the thread does next; all ones: none */
    _Atomic int64_t live;                 /* bytes it has allocated, less those it has freed */
    _Atomic uint32_t running;
} Lane;

static Lane *lanes;
/* What a slot holds: the address of a block and, from bit 48, its number in the slot. The number
 * stays when the block has left. */
typedef struct {
    _Atomic uint64_t held;
    uint64_t size; /* of the block; who takes the block may read it */
} Slot;

static Slot *slots;
static _Atomic uint32_t waiting_for_slots, waiting_for_pace, pace, running_threads, next_point;
static _Atomic int64_t curve[POINTS], peak;
static _Atomic uint64_t rss_at[POINTS]; /* resident bytes at the same times; only with a speed */
static _Atomic uint64_t ended_live;
static uint64_t start_ns, speed, window_us, touch_mode, pollute, none;

/* The address after a request that failed. */
#define NO_BLOCK UINT64_C(1)
enum { NUMBER_AT = 48, MOST_NUMBER = 0x7fff };
#define ADDRESS_MASK ((UINT64_C(1) << NUMBER_AT) - 1)
/* Where blocks lie if there is no allocator. */
static _Alignas(16) char nowhere[4096];

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

enum { SPINS = 200 };
static const struct timespec SHORT = {0, 200000};

/* What a thread waits for: that a block of this number has come to a slot, or has left it. */
typedef enum { HERE, GONE } Wanted;

static inline int is(uint64_t held, uint64_t number, Wanted wanted) {
    const int here = (held & ADDRESS_MASK) != 0;
    return held >> NUMBER_AT == number && here == (wanted == HERE);
}

/* The half of a slot that a waiting thread sleeps on changes whenever a block comes or goes. */
static _Atomic uint32_t *futex_of(uint64_t slot) {
    return (_Atomic uint32_t *)&slots[slot].held;
}

__attribute__((noinline, cold)) static uint64_t await_slowly(uint64_t slot, uint64_t number,
                                                             Wanted wanted) {
    uint64_t held;
    for (int i = 0; i < SPINS; i++) {
        if (is(held = atomic_load_explicit(&slots[slot].held, memory_order_acquire), number,
               wanted))
            return held;
        __builtin_ia32_pause();
    }
    atomic_fetch_add(&waiting_for_slots, 1);
    while (!is(held = atomic_load(&slots[slot].held), number, wanted))
        futex(futex_of(slot), FUTEX_WAIT, (uint32_t)held, &SHORT);
    atomic_fetch_sub(&waiting_for_slots, 1);
    return held;
}

static inline uint64_t await(uint64_t slot, uint64_t number, Wanted wanted) {
    const uint64_t held = atomic_load_explicit(&slots[slot].held, memory_order_acquire);
    return __builtin_expect(is(held, number, wanted), 1) ? held
                                                         : await_slowly(slot, number, wanted);
}

/* Waits until the block before this one has left the slot. */
static inline void await_room(uint64_t slot, uint64_t number) {
    await(slot, (number - 1) & MOST_NUMBER, GONE);
}

/* Other threads may wait for what has just become of a slot. */
static inline void tell(uint64_t slot) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&waiting_for_slots, memory_order_relaxed))
        futex(futex_of(slot), FUTEX_WAKE, INT32_MAX, NULL);
}

static inline void *block_of(uint64_t held) {
    const uint64_t address = held & ADDRESS_MASK;
    return address == NO_BLOCK ? NULL : (void *)(uintptr_t)address;
}

/* Takes the block out of a slot, and tells its size. */
static inline void *take(uint64_t slot, int from_another, uint64_t number, uint64_t *size) {
    const uint64_t held = from_another
                              ? await(slot, number, HERE)
                              : atomic_load_explicit(&slots[slot].held, memory_order_relaxed);
    *size = slots[slot].size;
    atomic_store_explicit(&slots[slot].held, number << NUMBER_AT, memory_order_release);
    if (from_another)
        tell(slot);
    return block_of(held);
}

static inline void put(uint64_t slot, void *block, uint64_t size, int for_another,
                       uint64_t number) {
    const uint64_t address =
        __builtin_expect(block != NULL, 1) ? (uint64_t)(uintptr_t)block : NO_BLOCK;
    slots[slot].size = size;
    atomic_store_explicit(&slots[slot].held, address | number << NUMBER_AT, memory_order_release);
    if (for_another)
        tell(slot);
}

/* ---- pace ------------------------------------------------------------------------------------ */

/* The place of the slowest thread, and the live bytes of all. */
static uint64_t slowest(int64_t *live) {
    uint64_t least = UINT64_MAX;
    *live = (int64_t)atomic_load_explicit(&ended_live, memory_order_relaxed);
    for (uint64_t i = 0; i < head.lanes; i++) {
        const uint64_t place = atomic_load_explicit(&lanes[i].place, memory_order_acquire);
        least = place < least ? place : least;
        *live += atomic_load_explicit(&lanes[i].live, memory_order_relaxed);
    }
    return least;
}

/* The place of the slowest thread as it was last seen: places only rise. Threads that wait look at
 * this alone, and only the slowest thread wakes them. */
static _Atomic uint64_t floor_us;
enum { FEW_LANES = 8 };
static const struct timespec LONG_WAIT = {0, 5000000};

static void raise_floor(int64_t *live) {
    atomic_thread_fence(memory_order_seq_cst);
    const uint64_t least = slowest(live);
    uint64_t known = atomic_load(&floor_us);
    while (least > known && !atomic_compare_exchange_weak(&floor_us, &known, least)) {
    }
    if (least > known && atomic_load(&waiting_for_pace)) {
        atomic_fetch_add(&pace, 1);
        futex(&pace, FUTEX_WAKE, INT32_MAX, NULL);
    }
}

/* The recorded times at which live bytes are compared. */
static uint64_t points_us[POINTS];

/* The thread reaches recorded time `us`. Returns whether it has waited. `most` is the most live
 * bytes of this thread since its last tick. */
static int tick(Lane *lane, uint64_t us, int64_t most) {
    int waited = 0;
    int64_t live;
    const uint64_t before = atomic_load_explicit(&lane->place, memory_order_relaxed);
    atomic_store_explicit(&lane->place, us, memory_order_release);
    if (before <= atomic_load(&floor_us))
        raise_floor(&live);
    if (speed) {
        const uint64_t due = start_ns + us * 100000 / speed;
        if (now_ns() + 50000 < due) {
            const struct timespec until = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
            }
            waited = 1;
        }
    }
    for (int spins = head.lanes > FEW_LANES ? SPINS : 0; atomic_load(&floor_us) + window_us < us;) {
        waited = 1;
        if (spins++ < SPINS) {
            __builtin_ia32_pause();
            continue;
        }
        const uint32_t seen = atomic_load(&pace);
        atomic_fetch_add(&waiting_for_pace, 1);
        if (atomic_load(&floor_us) + window_us < us &&
            futex(&pace, FUTEX_WAIT, seen, &LONG_WAIT) != 0)
            raise_floor(&live);
        atomic_fetch_sub(&waiting_for_pace, 1);
    }
    slowest(&live);
    const int64_t own = atomic_load_explicit(&lane->live, memory_order_relaxed);
    const int64_t highest = live - own + most;
    int64_t known = atomic_load_explicit(&peak, memory_order_relaxed);
    while (highest > known && !atomic_compare_exchange_weak(&peak, &known, highest)) {
    }
    uint32_t next = atomic_load(&next_point);
    while (next < POINTS && us >= points_us[next])
        if (atomic_compare_exchange_weak(&next_point, &next, next + 1)) {
            if (speed)
                atomic_store(&rss_at[next], rss_bytes());
            atomic_store(&curve[next++], live);
        }
    return waited;
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { BUFFER_WORDS = 16384 };

typedef struct {
    uint64_t at, left;
    const uint64_t *next, *end;
    uint64_t *buffer;
} Words;

__attribute__((noinline, cold)) static void refill(Words *words) {
    const uint64_t count = words->left < BUFFER_WORDS ? words->left : BUFFER_WORDS;
    size_t done = 0;
    while (done < count * 8) {
        ssize_t got = pread(plan_file, (char *)words->buffer + done, count * 8 - done,
                            (off_t)(words->at + done));
        if (got <= 0)
            fail("cannot read the plan", got ? strerror(errno) : "it ends early");
        done += (size_t)got;
    }
    words->at += count * 8;
    words->left -= count;
    words->next = words->buffer;
    words->end = words->buffer + count;
}

static inline int more(Words *words) {
    return words->next < words->end || words->left;
}

static inline uint64_t next_word(Words *words) {
    if (__builtin_expect(words->next == words->end, 0))
        refill(words);
    return *words->next++;
}

__attribute__((noinline)) static void touch_pages(char *block, uint64_t size, uint64_t share) {
    if (touch_mode == 3) {
        memset(block, 'a', size);
    } else if (touch_mode == 1) {
        /* Pages that were touched are mostly the first ones. */
        const uint64_t end = (size * share + 254) / 255;
        for (uint64_t at = 0; at < end; at += PAGE_BYTES)
            ((volatile char *)block)[at] = 'a';
    } else {
        *(volatile char *)block = 'a';
    }
}

static inline void touch(void *block, uint64_t size, uint64_t share) {
    if (!block || !size || !touch_mode || none)
        return;
    if (__builtin_expect(size <= PAGE_BYTES && touch_mode < 3, 1))
        *(volatile char *)block = 'a';
    else
        touch_pages((char *)block, size, share);
}

extern void _ZdlPvm(void *, size_t) __attribute__((weak));
extern size_t malloc_usable_size(void *);
extern int malloc_trim(size_t);

static void *run_stream(void *argument);

static void spawn(uint64_t number) {
    Lane *lane = &lanes[streams[number].lane];
    while (atomic_load_explicit(&lane->running, memory_order_acquire))
        sched_yield(); /* the lane's last thread is about to end */
    atomic_store(&lane->place, streams[number].first_us);
    atomic_store(&lane->running, 1);
    atomic_fetch_add(&running_threads, 1);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    int error = pthread_create(&thread, &attributes, run_stream, &streams[number]);
    if (error)
        fail("cannot start a thread", strerror(error));
    pthread_attr_destroy(&attributes);
}

static inline void *request(int what, uint64_t size, uint64_t align) {
    if (none)
        return nowhere;
    if (what == LONG_ALIGNED) {
        void *block = NULL;
        if (align < sizeof(void *))
            align = sizeof(void *);
        return posix_memalign(&block, align, size) ? NULL : block;
    }
    return what == LONG_CALLOC ? calloc(1, size) : malloc(size);
}

static inline void release(void *block, uint64_t size, int sized) {
    if (none)
        return;
    if (sized && _ZdlPvm && block)
        _ZdlPvm(block, size);
    else
        free(block);
}

static void *run_stream(void *argument) {
    const Stream *stream = (const Stream *)argument;
    Lane *lane = &lanes[stream->lane];
    Words words = {stream->at, stream->words, NULL, NULL, NULL};
    words.buffer = (uint64_t *)map_memory(BUFFER_WORDS * 8);
    char *dirt = pollute ? (char *)map_memory(pollute) : NULL;
    int64_t live = 0, most = 0;
    while (more(&words)) {
        const uint64_t word = next_word(&words);
        const int flag = word >> 3 & 1;
        const uint64_t slot = word >> 4 & 0xfffffff;
        uint64_t size = word >> 32;
        switch (word & 7) {
        case CONTROL:
            switch (size & 15) {
            case TICK:
                if (tick(lane, slot | (size >> 4) << 28, most) && dirt)
                    for (uint64_t at = 0; at < pollute; at += 64)
                        ((volatile char *)dirt)[at]++;
                most = live;
                break;
            case SPAWN:
                spawn(slot);
                break;
            case TRIM:
                if (!none)
                    malloc_trim(0);
                break;
            }
            continue;
        case MALLOC:
        case CALLOC: {
            const uint64_t number = size >> 16 & MOST_NUMBER;
            if (size >> 31)
                await_room(slot, number);
            size &= 0xffff;
            void *block = request((word & 7) == CALLOC ? LONG_CALLOC : LONG_MALLOC, size, 0);
            touch(block, size, 255);
            put(slot, block, size, flag, number);
            live += (int64_t)size;
            break;
        }
        case LONG: {
            const uint64_t how = size, number = how >> 16 & MOST_NUMBER;
            size = next_word(&words);
            if (how >> 31)
                await_room(slot, number);
            void *block = request(how & 3, size, UINT64_C(1) << (how >> 2 & 63));
            touch(block, size, how >> 8 & 255);
            put(slot, block, size, flag, number);
            live += (int64_t)size;
            break;
        }
        case REALLOC: {
            const uint64_t second = next_word(&words), numbers = next_word(&words);
            const uint64_t new_slot = second >> 4 & 0xfffffff, number = numbers >> 16 & MOST_NUMBER;
            if (second & 1)
                await_room(new_slot, number);
            uint64_t old_size;
            void *old = take(slot, flag, numbers & MOST_NUMBER, &old_size), *block;
            size |= (second >> 32 & 0xffff) << 32;
            block = none ? nowhere : realloc(old, size);
            if (size > old_size && block && !none && touch_mode) {
                const uint64_t share = second >> 48 & 255;
                if (old_size < PAGE_BYTES || touch_mode == 2)
                    touch(block, size, share);
                else
                    touch((char *)block + old_size, size - old_size, share);
            }
            put(new_slot, block, size, second >> 3 & 1, number);
            live += (int64_t)size - (int64_t)old_size;
            break;
        }
        case FREE:
        case SIZED_FREE: {
            void *block = take(slot, flag, size >> 16 & MOST_NUMBER, &size);
            release(block, size, (word & 7) == SIZED_FREE);
            live -= (int64_t)size;
            break;
        }
        case QUERY: {
            const uint64_t held =
                flag ? await(slot, size >> 16 & MOST_NUMBER, HERE)
                     : atomic_load_explicit(&slots[slot].held, memory_order_relaxed);
            void *block = block_of(held);
            if (block && !none) {
                volatile size_t usable = malloc_usable_size(block);
                (void)usable;
            }
            continue;
        }
        }
        most = live > most ? live : most;
        atomic_store_explicit(&lane->live, live, memory_order_relaxed);
    }
    munmap(words.buffer, BUFFER_WORDS * 8);
    if (dirt)
        munmap(dirt, pollute);
    /* The next thread of this lane begins with nothing; what this one leaves stays counted. */
    atomic_store(&lane->live, 0);
    atomic_fetch_add(&ended_live, (uint64_t)live);
    atomic_store(&lane->place, UINT64_MAX);
    raise_floor(&live);
    atomic_store_explicit(&lane->running, 0, memory_order_release);
    if (atomic_fetch_sub(&running_threads, 1) == 1)
        futex(&running_threads, FUTEX_WAKE, INT32_MAX, NULL);
    return NULL;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void open_plan(const char *path) {
    uint64_t words[HEAD_WORDS];
    plan_file = open(path, O_RDONLY | O_CLOEXEC);
    if (plan_file < 0)
        fail(path, strerror(errno));
    if (pread(plan_file, words, sizeof words, 0) != sizeof words || words[0] != PLAN_MAGIC)
        fail(path, "it is no plan");
    memcpy(&head, words, sizeof head);
    memcpy(points_us, words + TIMES_AT, sizeof points_us);
    streams = (Stream *)map_memory(head.threads * sizeof(Stream) + 1);
    const size_t bytes = head.threads * sizeof(Stream);
    if (pread(plan_file, streams, bytes, (off_t)head.table_at) != (ssize_t)bytes)
        fail(path, "it ends early");
    lanes = (Lane *)map_memory(head.lanes * sizeof(Lane) + 1);
    for (uint64_t i = 0; i < head.lanes; i++)
        lanes[i].place = UINT64_MAX;
    slots = (Slot *)map_memory(head.slots * sizeof(Slot) + 1);
}

int main(int argc, char **argv) {
    if (argc < 2 || strncmp(argv[1], "plan=", 5) != 0)
        fail("usage", "replay plan=FILE [name=value]...");
    static Param params[] = {
        {"speed", 0, 0, 100000000}, {"window", 0, 0, UINT64_C(1) << 40}, {"touch", 1, 0, 3},
        {"pollute", 0, 0, UINT64_C(1) << 30}, {"none", 0, 0, 1},
    };
    argv[1][4] = 0;
    const char *path = argv[1] + 5;
    parse_params(argc - 1, argv + 1, params, sizeof params / sizeof *params);
    speed = params[0].value;
    window_us = params[1].value;
    touch_mode = params[2].value;
    pollute = params[3].value;
    none = params[4].value;
    open_plan(path);
    if (window_us == 0)
        window_us = 4 * head.tick_us;
    if (window_us < 2 * head.tick_us)
        window_us = 2 * head.tick_us; /* less would have threads wait for each other */
    const double begun = now();
    start_ns = now_ns();
    if (head.threads) {
        lanes[streams[0].lane].place = streams[0].first_us;
        lanes[streams[0].lane].running = 1;
        atomic_fetch_add(&running_threads, 1);
        run_stream(&streams[0]);
    }
    for (uint32_t left; (left = atomic_load(&running_threads)) != 0;)
        futex(&running_threads, FUTEX_WAIT, left, &SHORT);
    const double seconds = now() - begun;
    note_end();
    const int64_t live = (int64_t)atomic_load(&ended_live);
    for (uint32_t next = atomic_load(&next_point); next < POINTS; next++)
        curve[next] = live;
    printf("replay_peak_live %lld\n", (long long)peak);
    printf("replay_live %lld\n", (long long)live);
    for (int i = 0; i < POINTS; i++)
        printf("replay_curve %lld\n", (long long)curve[i]);
    for (int i = 0; i < POINTS; i++)
        if (rss_at[i])
            printf("curve %.6f %llu\n", (double)points_us[i] / 1e6, (unsigned long long)rss_at[i]);
    print_memory();
    print_result(seconds > 0 ? seconds : 1e-9, head.operations);
    return 0;
}
