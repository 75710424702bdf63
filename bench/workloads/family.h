/* The processes of a replay: what they share, how they begin and end, and their memory.
 *
 * A recording of one process is replayed by one. Of a family, the program that the lab starts is
 * not a member: it executes itself once more as the first one, so that the allocator of that begins
 * as in life, waits for all members, and prints what they have found. Members fork where the
 * recorded processes did and end when they have nothing left to do, so the pages that they share
 * are shared as long as in life.
 *
 * All members see one `Family` and one array of lanes, in shared memory. A thread that waits for
 * another process looks now and then whether one has failed, and then ends its own.
 *
 * The memory of a family is the sum of its members' Pss, in which a page that several processes
 * share counts once. The sum of their RSS counts it once for each. */
#ifndef MALLARD_FAMILY_H
#define MALLARD_FAMILY_H

#include "memory.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CURVE_POINTS = 100 };

/* A place for one thread at a time. */
typedef struct {
    _Alignas(128) _Atomic uint64_t
        place;              /* recorded time of what the thread does next; all ones: none */
    _Atomic int64_t live;   /* bytes it has allocated, less those it has freed */
    _Atomic uint32_t ended; /* threads that have had it */
    _Atomic uint32_t process;
} Lane;

typedef struct {
    /* The place of the slowest thread as it was last seen: places only rise. Threads that wait look
     * at this alone, and only the slowest thread wakes them. */
    _Alignas(128) _Atomic uint64_t floor_us;
    _Atomic uint32_t waiting_for_pace, pace, next_point, points_seen;
    _Alignas(128) _Atomic int64_t ended_live; /* what threads that have ended have left */
    _Atomic int64_t peak, curve[CURVE_POINTS];
    _Atomic uint64_t memory_at[CURVE_POINTS], peak_memory, peak_rss;
    _Atomic uint64_t start_ns, end_ns;
    _Atomic uint32_t living, failed;
    uint64_t end_rss, lazy_free, huge; /* the last member's */
    _Atomic int32_t ids[];             /* of members that live; 0 for others */
} Family;

static Family *family;
static Lane *lanes;
static uint64_t lane_count, member_count, this_member;
/* Bytes that ended threads of this process have left. */
static _Atomic int64_t left_live;
/* Whether /proc tells Pss, and whether this member is the last one. */
static int has_pss, is_last;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A word that only threads of this process wait on. */
static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

/* A word of the family. */
static long family_futex(_Atomic uint32_t *word, int what, uint32_t value,
                         const struct timespec *limit) {
    const int scope = member_count > 1 ? 0 : FUTEX_PRIVATE_FLAG;
    return syscall(SYS_futex, word, what | scope, value, limit, NULL, 0);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value) {
    uint64_t known = atomic_load(most);
    while (value > known && !atomic_compare_exchange_weak(most, &known, value)) {}
}

/* ---- shared memory --------------------------------------------------------------------------- */

static size_t head_bytes(void) {
    const size_t bytes = sizeof(Family) + member_count * sizeof(int32_t);
    return (bytes + _Alignof(Lane) - 1) / _Alignof(Lane) * _Alignof(Lane);
}

static size_t family_bytes(void) { return head_bytes() + lane_count * sizeof(Lane); }

static void enter_family(void *memory) {
    family = (Family *)memory;
    lanes = (Lane *)((char *)memory + head_bytes());
}

/* Before any member runs. */
static void prepare_family(void) {
    for (uint64_t i = 0; i < lane_count; i++)
        lanes[i].place = UINT64_MAX;
    family->living = 1;
}

static void *map_shared(int file) {
    void *memory = mmap(NULL, family_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        fail("cannot map the memory of the family", strerror(errno));
    return memory;
}

/* ---- memory of the family -------------------------------------------------------------------- */

/* The sums over all members, of Pss and of RSS. */
static void measure_family(uint64_t *pss, uint64_t *rss) {
    *pss = *rss = 0;
    for (uint64_t i = 0; i < member_count; i++) {
        const int32_t id = atomic_load(&family->ids[i]);
        if (!id)
            continue;
        char path[48], text[4096];
        snprintf(path, sizeof path, "/proc/%d/%s", id, has_pss ? "smaps_rollup" : "status");
        if (!read_proc(path, text, sizeof text))
            continue; /* it has just ended */
        const uint64_t resident = bytes_in(text, has_pss ? "Rss:" : "VmRSS:");
        *rss += resident;
        *pss += has_pss ? bytes_in(text, "Pss:") : resident;
    }
}

/* A hundredth of the recorded time has passed. `wanted`: the memory of the family is to be read,
 * which takes time. */
static void note_memory(uint32_t point, int wanted) {
    if (!wanted)
        return;
    if (member_count == 1) {
        atomic_store(&family->memory_at[point], rss_bytes());
        return;
    }
    uint64_t pss, rss;
    measure_family(&pss, &rss);
    atomic_store(&family->memory_at[point], pss);
    raise_to(&family->peak_memory, pss);
    raise_to(&family->peak_rss, rss);
}

/* ---- the end of members ---------------------------------------------------------------------- */

static int is_failure(int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }

static void tell_failure(pid_t id, int status) {
    /* A member that has found the trouble itself has said so. */
    if (WIFSIGNALED(status) && atomic_exchange(&family->failed, 1) == 0)
        fprintf(stderr, "workload: process %d of the family: ended by signal %d (%s)\n", (int)id,
                WTERMSIG(status), strsignal(WTERMSIG(status)));
    atomic_store(&family->failed, 1);
}

/* Called by threads that have waited for long: what they wait for may never come. */
static void look_for_failure(void) {
    if (member_count < 2)
        return;
    int status;
    for (pid_t id; (id = waitpid(-1, &status, WNOHANG)) > 0;)
        if (is_failure(status))
            tell_failure(id, status);
    if (atomic_load(&family->failed))
        _exit(2);
}

/* This process begins as a member. */
static void begin_member(uint64_t member) {
    this_member = member;
    atomic_store(&left_live, 0);
    atomic_store(&family->ids[member], (int32_t)getpid());
}

/* The last stream of this member has come to its end. Its memory goes with it, but what the last
 * member leaves stays to be seen. */
static void count_out(void) {
    if (atomic_fetch_sub(&family->living, 1) > 1)
        atomic_fetch_sub(&family->ended_live, atomic_load(&left_live));
    else
        is_last = 1;
}

/* All threads of this member have ended. The last one notes the state in which it leaves. */
static void end_member(void) {
    if (is_last) {
        raise_to(&family->end_ns, now_ns());
        if (!family->peak_memory)
            note_memory(CURVE_POINTS - 1, member_count > 1);
        note_end();
        family->end_rss = end_rss;
        family->lazy_free = lazy_free;
        family->huge = huge_seen;
    }
    atomic_store(&family->ids[this_member], 0);
}

/* Executes this program once more as the first member, with its own arguments and the shared
 * memory, and waits for all members. */
static void supervise(int argc, char **argv) {
    enum { MOST_ARGUMENTS = 16 };
    char *arguments[MOST_ARGUMENTS + 2], shared[32];
    const int file = memfd_create("family", 0);
    if (file < 0 || ftruncate(file, (off_t)family_bytes()) != 0)
        fail("cannot make the memory of the family", strerror(errno));
    enter_family(map_shared(file));
    prepare_family();
    if (argc > MOST_ARGUMENTS)
        fail("usage", "too many arguments");
    memcpy(arguments, argv, (size_t)argc * sizeof *argv);
    snprintf(shared, sizeof shared, "member=%d", file);
    arguments[argc] = shared;
    arguments[argc + 1] = NULL;
    /* Members whose parents have ended become children of this process. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t first = fork();
    if (first < 0)
        fail("cannot fork", strerror(errno));
    if (first == 0) {
        execv("/proc/self/exe", arguments);
        fail("cannot execute the replay again", strerror(errno));
    }
    close(file);
    int status;
    for (pid_t id; (id = waitpid(-1, &status, 0)) > 0 || errno == EINTR;)
        if (id > 0 && is_failure(status))
            tell_failure(id, status);
    if (atomic_load(&family->failed))
        exit(2);
}

#endif
