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
 * Where a recorded process forked, the replay forks: in the same thread, when all threads of the
 * process have come to that point of the recording. So the child begins with the blocks that lived,
 * in a copy of the heap and of the slots, and no thread is inside the allocator that is forked.
 * family.h has what the processes share, slots.h the slots.
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
 * lines `curve SECONDS BYTES`. Of a family, that and the peak (`child_rss_bytes`) are the sum of
 * Pss; `family_rss_bytes` is the largest sum of RSS. Without a speed both are read once, where the
 * recording had the most live bytes: it takes a walk over the pages of all processes. */
#include "family.h"
#include "plan.h"
#include "slots.h"

#include <sched.h>

/* ---- what threads share ---------------------------------------------------------------------- */

/* Of this process: threads, and those of them that have not come to the end of their streams. */
static _Atomic uint32_t running_threads, running_streams;
static uint64_t speed, window_us, touch_mode, pollute, none;
/* Where blocks lie if there is no allocator. */
static _Alignas(16) char nowhere[4096];

/* ---- pace ------------------------------------------------------------------------------------ */

/* The place of the slowest thread, and the live bytes of all. */
static uint64_t slowest(int64_t *live) {
    uint64_t least = UINT64_MAX;
    *live = atomic_load_explicit(&family->ended_live, memory_order_relaxed);
    for (uint64_t i = 0; i < lane_count; i++) {
        const uint64_t place = atomic_load_explicit(&lanes[i].place, memory_order_acquire);
        least = place < least ? place : least;
        *live += atomic_load_explicit(&lanes[i].live, memory_order_relaxed);
    }
    return least;
}

enum { FEW_LANES = 8 };
static const struct timespec LONG_WAIT = {0, 5000000};

static void raise_floor(int64_t *live) {
    atomic_thread_fence(memory_order_seq_cst);
    const uint64_t least = slowest(live);
    uint64_t known = atomic_load(&family->floor_us);
    while (least > known && !atomic_compare_exchange_weak(&family->floor_us, &known, least)) {}
    if (least > known && atomic_load(&family->waiting_for_pace)) {
        atomic_fetch_add(&family->pace, 1);
        family_futex(&family->pace, FUTEX_WAKE, INT32_MAX, NULL);
    }
}

/* Waits until the slowest thread has come to a time. Returns whether that took a wait. */
static int await_floor(uint64_t us) {
    int waited = 0;
    for (int spins = lane_count > FEW_LANES ? SPINS : 0; atomic_load(&family->floor_us) < us;) {
        waited = 1;
        if (spins++ < SPINS) {
            pause_briefly();
            continue;
        }
        const uint32_t seen = atomic_load(&family->pace);
        atomic_fetch_add(&family->waiting_for_pace, 1);
        if (atomic_load(&family->floor_us) < us &&
            family_futex(&family->pace, FUTEX_WAIT, seen, &LONG_WAIT) != 0) {
            int64_t live;
            raise_floor(&live);
            look_for_failure();
        }
        atomic_fetch_sub(&family->waiting_for_pace, 1);
    }
    return waited;
}

/* The recorded times at which live bytes are compared, and the one with the most of them. */
static uint64_t points_us[CURVE_POINTS];
static uint32_t top_point;

/* The thread reaches recorded time `us`. Returns whether it has waited. `most` is the most live
 * bytes of this thread since its last tick. */
static int tick(Lane *lane, uint64_t us, int64_t most) {
    int waited = 0;
    int64_t live;
    const uint64_t before = atomic_load_explicit(&lane->place, memory_order_relaxed);
    atomic_store_explicit(&lane->place, us, memory_order_release);
    if (before <= atomic_load(&family->floor_us))
        raise_floor(&live);
    if (speed) {
        const uint64_t due = atomic_load(&family->start_ns) + us * 100000 / speed;
        if (now_ns() + 50000 < due) {
            const struct timespec until = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
            waited = 1;
        }
    }
    waited |= await_floor(us > window_us ? us - window_us : 0);
    slowest(&live);
    const int64_t own = atomic_load_explicit(&lane->live, memory_order_relaxed);
    const int64_t highest = live - own + most;
    int64_t known = atomic_load_explicit(&family->peak, memory_order_relaxed);
    while (highest > known && !atomic_compare_exchange_weak(&family->peak, &known, highest)) {}
    uint32_t next = atomic_load(&family->next_point);
    while (member_count == 1 && next < CURVE_POINTS && us >= points_us[next])
        if (atomic_compare_exchange_weak(&family->next_point, &next, next + 1)) {
            note_memory(next, speed != 0);
            atomic_store(&family->curve[next++], live);
        }
    return waited;
}

/* All threads of the family come to a point of the curve, and one of them looks. */
static void meet(Lane *lane, uint32_t point) {
    await_floor(atomic_load_explicit(&lane->place, memory_order_relaxed));
    uint32_t next = point;
    if (atomic_compare_exchange_strong(&family->next_point, &next, point + 1)) {
        int64_t live;
        slowest(&live);
        note_memory(point, speed || point == top_point);
        atomic_store(&family->curve[point], live);
        atomic_store(&family->points_seen, point + 1);
        family_futex(&family->points_seen, FUTEX_WAKE, INT32_MAX, NULL);
        return;
    }
    for (uint32_t seen; (seen = atomic_load(&family->points_seen)) <= point;)
        if (family_futex(&family->points_seen, FUTEX_WAIT, seen, &LONG_WAIT) != 0)
            look_for_failure();
}

/* ---- threads --------------------------------------------------------------------------------- */

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

/* Makes a lane ready for the thread of a stream. */
static Lane *enter_lane(const Stream *stream) {
    Lane *lane = &lanes[stream->lane];
    for (unsigned looks = 1;
         atomic_load_explicit(&lane->ended, memory_order_acquire) != stream->turn; looks++) {
        sched_yield(); /* the lane's last thread is about to end, or even to begin */
        if (looks % 4096 == 0)
            look_for_failure();
    }
    atomic_store(&lane->process, (uint32_t)stream->process);
    atomic_store(&lane->place, stream->first_us);
    return lane;
}

static void spawn(uint64_t number) {
    enter_lane(&streams[number]);
    atomic_fetch_add(&running_threads, 1);
    atomic_fetch_add(&running_streams, 1);
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

/* ---- forks ----------------------------------------------------------------------------------- */

/* Threads of this process that stand still until it has forked, and the forks so far. */
static _Atomic uint32_t paused, forks;

/* Waits until this process has forked so many times. */
static void await_fork(uint64_t number) {
    atomic_fetch_add(&paused, 1);
    futex(&paused, FUTEX_WAKE, 1, NULL);
    for (uint32_t seen; (seen = atomic_load(&forks)) < number;)
        if (futex(&forks, FUTEX_WAIT, seen, &LONG_WAIT) != 0)
            look_for_failure();
}

/* The bytes that live in this process while all its threads stand still. */
static int64_t live_here(void) {
    int64_t live = atomic_load(&left_live);
    for (uint64_t i = 0; i < lane_count; i++)
        if (atomic_load(&lanes[i].process) == this_member)
            live += atomic_load(&lanes[i].live);
    return live;
}

/* Forks once all other threads of this process stand still or have ended: what they had to do
 * before is done. Returns whether this is the child, which goes on with the stream. */
static int fork_here(const Stream *stream) {
    for (uint32_t seen; (seen = atomic_load(&paused)) + 1 != atomic_load(&running_threads);)
        if (futex(&paused, FUTEX_WAIT, seen, &SHORT) != 0)
            look_for_failure();
    /* The child counts and waits as a thread of the family from now on. */
    Lane *lane = enter_lane(stream);
    atomic_store(&lane->live, live_here());
    atomic_fetch_add(&family->living, 1);
    const pid_t child = fork();
    if (child < 0)
        fail("cannot fork", strerror(errno));
    if (child == 0) {
        atomic_store(&paused, 0);
        atomic_store(&forks, 0);
        atomic_store(&waiting_for_slots, 0);
        atomic_store(&running_threads, 1);
        atomic_store(&running_streams, 1);
        begin_member(stream->process);
        return 1;
    }
    atomic_store(&paused, 0);
    atomic_fetch_add(&forks, 1);
    futex(&forks, FUTEX_WAKE, INT32_MAX, NULL);
    look_for_failure();
    return 0;
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

static void leave(void);

static void *run_stream(void *argument) {
    const Stream *stream = (const Stream *)argument;
    Lane *lane = &lanes[stream->lane];
    Words words = {stream->at, stream->words, NULL, NULL, NULL};
    words.buffer = (uint64_t *)map_memory(BUFFER_WORDS * 8);
    int is_first_of_fork = 0;
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
            case PAUSE:
                await_fork(slot);
                break;
            case POINT:
                meet(lane, (uint32_t)slot);
                break;
            case FORK:
                if (!fork_here(&streams[slot]))
                    break;
                stream = &streams[slot];
                lane = &lanes[stream->lane];
                words.at = stream->at;
                words.left = stream->words;
                words.next = words.end = NULL;
                live = most = atomic_load(&lane->live);
                is_first_of_fork = 1;
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
    atomic_fetch_add(&left_live, live);
    atomic_fetch_add(&family->ended_live, live);
    if (atomic_fetch_sub(&running_streams, 1) == 1)
        count_out();
    atomic_store(&lane->place, UINT64_MAX);
    raise_floor(&live);
    atomic_fetch_add_explicit(&lane->ended, 1, memory_order_release);
    if (atomic_fetch_sub(&running_threads, 1) == 1)
        futex(&running_threads, FUTEX_WAKE, INT32_MAX, NULL);
    if (is_first_of_fork)
        leave();
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
    memcpy(points_us, words + TIMES_AT_WORD, sizeof points_us);
    for (uint32_t i = 1; i < CURVE_POINTS; i++)
        if (words[CURVE_AT_WORD + i] > words[CURVE_AT_WORD + top_point])
            top_point = i;
    lane_count = head.lanes;
    member_count = head.processes;
    streams = (Stream *)map_memory(head.threads * sizeof(Stream) + 1);
    const size_t bytes = head.threads * sizeof(Stream);
    if (pread(plan_file, streams, bytes, (off_t)head.table_at) != (ssize_t)bytes)
        fail(path, "it ends early");
    slots = (Slot *)map_memory(head.slots * sizeof(Slot) + 1);
}

/* Waits for the other threads of this process. */
static void await_threads(void) {
    for (uint32_t left; (left = atomic_load(&running_threads)) != 0;)
        if (futex(&running_threads, FUTEX_WAIT, left, &SHORT) != 0)
            look_for_failure();
}

/* The end of a member, which leaves its children to the program that waits for all. */
static void leave(void) {
    await_threads();
    end_member();
    _exit(0);
}

/* The first member, or the only one. */
static void run(void) {
    begin_member(0);
    atomic_store(&family->start_ns, now_ns());
    if (head.threads) {
        enter_lane(&streams[0]);
        atomic_fetch_add(&running_threads, 1);
        atomic_fetch_add(&running_streams, 1);
        run_stream(&streams[0]);
    }
    await_threads();
    end_member();
}

static void print_answer(void) {
    const int64_t live = atomic_load(&family->ended_live);
    for (uint32_t next = atomic_load(&family->next_point); next < CURVE_POINTS; next++)
        family->curve[next] = live;
    printf("replay_peak_live %lld\n", (long long)family->peak);
    printf("replay_live %lld\n", (long long)live);
    for (int i = 0; i < CURVE_POINTS; i++)
        printf("replay_curve %lld\n", (long long)family->curve[i]);
    for (int i = 0; i < CURVE_POINTS; i++)
        if (speed && family->memory_at[i])
            printf("curve %.6f %llu\n", (double)points_us[i] / 1e6,
                   (unsigned long long)family->memory_at[i]);
    if (member_count > 1) {
        printf("child_rss_bytes %llu\n", (unsigned long long)family->peak_memory);
        printf("family_rss_bytes %llu\n", (unsigned long long)family->peak_rss);
    }
    end_rss = family->end_rss;
    lazy_free = family->lazy_free;
    huge_seen = family->huge;
    print_memory();
    const double seconds = (double)(family->end_ns - family->start_ns) / 1e9;
    print_result(seconds > 0 ? seconds : 1e-9, head.operations);
}

int main(int argc, char **argv) {
    if (argc < 2 || strncmp(argv[1], "plan=", 5) != 0)
        fail("usage", "replay plan=FILE [name=value]...");
    static Param params[] = {
        {"speed", 0, 0, 100000000},
        {"window", 0, 0, UINT64_C(1) << 40},
        {"touch", 1, 0, 3},
        {"pollute", 0, 0, UINT64_C(1) << 30},
        {"none", 0, 0, 1},
        {"member", 0, 0, INT32_MAX}, /* of a family: the file of its shared memory */
    };
    argv[1][4] = 0;
    const char *path = argv[1] + 5;
    parse_params(argc - 1, argv + 1, params, sizeof params / sizeof *params);
    argv[1][4] = '=';
    speed = params[0].value;
    window_us = params[1].value;
    touch_mode = params[2].value;
    pollute = params[3].value;
    none = params[4].value;
    const int shared = (int)params[5].value;
    open_plan(path);
    if (window_us == 0)
        window_us = 4 * head.tick_us;
    if (window_us < 2 * head.tick_us)
        window_us = 2 * head.tick_us; /* less would have threads wait for each other */
    if (member_count > 1 && !shared) {
        supervise(argc, argv);
    } else if (member_count > 1) {
        enter_family(map_shared(shared));
        close(shared);
        has_pss = proc_bytes("/proc/self/smaps_rollup", "Pss:") != 0;
        run();
        _exit(0);
    } else {
        enter_family(map_memory(family_bytes()));
        prepare_family();
        run();
    }
    print_answer();
    return 0;
}
