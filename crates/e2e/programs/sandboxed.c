/* A program in a sandbox. With `allow`, every system call kills it except those of the C library's
 * malloc and a few of its own (`allow-shrinking` permits some more). With `deny`, the calls that
 * systemd lists under @resources kill it. The arguments also select when it enters the sandbox
 * (`first`: before its first call of malloc; `later`: between two sets of threads; `inherited`: it
 * gets the sandbox from the program that starts it), and on how many memory nodes its threads claim
 * to run. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"
#include "malloc_more.h"

/* The calls that this program and the C library's malloc and threads need. */
static const int allowed[] = {
    SYS_brk,     SYS_mmap,  SYS_munmap,          SYS_mprotect,          SYS_mremap,
    SYS_madvise, SYS_futex, SYS_getrandom,       SYS_sched_getaffinity, SYS_clone,
    SYS_clone3,  SYS_rseq,  SYS_set_robust_list, SYS_rt_sigaction,      SYS_rt_sigprocmask,
    SYS_exit,    SYS_write, SYS_clock_nanosleep, SYS_exit_group};

/* The calls that the loader needs in addition. */
static const int loading[] = {SYS_execve,          SYS_arch_prctl, SYS_access, SYS_openat,
                              SYS_newfstatat,      SYS_fstat,      SYS_read,   SYS_pread64,
                              SYS_set_tid_address, SYS_prlimit64,  SYS_close};

/* The C library reads /proc/sys/vm/overcommit_memory when it shrinks a thread's arena. */
static const int shrinking[] = {SYS_openat, SYS_read, SYS_close};

static const int resources[] = {
    SYS_ioprio_set,        SYS_mbind,         SYS_migrate_pages,  SYS_move_pages,
    SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam, SYS_sched_setscheduler,
    SYS_set_mempolicy,     SYS_setpriority,   SYS_setrlimit};

enum { MOST = 256, CREW = 4 };
static struct sock_filter code[MOST];
static unsigned short length;

static void add(struct sock_filter instruction) {
    CHECK(length < MOST);
    code[length++] = instruction;
}

#define ADD(...) add((struct sock_filter)__VA_ARGS__)
#define ANSWER_TO(calls, answer)                                                                   \
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {                                    \
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1));                        \
        ADD(BPF_STMT(BPF_RET | BPF_K, answer));                                                    \
    }

static int deny, shrinks;

static void enter(int inherited) {
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    if (deny) {
        ANSWER_TO(resources, SECCOMP_RET_KILL_PROCESS);
        ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    } else {
        ANSWER_TO(allowed, SECCOMP_RET_ALLOW);
        if (shrinks)
            ANSWER_TO(shrinking, SECCOMP_RET_ALLOW);
        if (inherited)
            ANSWER_TO(loading, SECCOMP_RET_ALLOW);
        ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    }
    struct sock_fprog filter = {length, code};
    /* Applies to all threads, including those that the program did not start. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        dprintf(1, "no filter: %s\n", strerror(errno));
        _exit(0);
    }
}

/* Replaces the C library's function, since the program's symbols come first. */
static int nodes = 1;
static _Atomic int begun;
static __thread int thread;

int getcpu(unsigned *cpu, unsigned *node) {
    if (cpu)
        *cpu = 0;
    if (node)
        *node = (unsigned)(thread % nodes);
    return 0;
}

static void work(void) {
    enum { BLOCKS = 300 };
    for (int round = 0; round < 3; round++) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(blocks[i] = malloc(1000 + (size_t)i * 600));
            memset(blocks[i], i, 500);
        }
        for (int i = 0; i < BLOCKS; i += 3)
            CHECK(blocks[i] = realloc(blocks[i], 2000 + (size_t)i * 900));
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(blocks[i][499] == (char)i);
            free(blocks[i]);
        }
    }
    char *grown = NULL;
    for (size_t size = 1 << 20; size <= 32u << 20; size *= 2) {
        CHECK(grown = realloc(grown, size));
        memset(grown + size / 2, 1, 1 << 16);
    }
    free(grown);
    free(calloc(1000, 1000));
    free(aligned_alloc(1 << 16, 1 << 20));
}

/* The threads wait for each other after their work, so that no thread reuses memory that another
 * freed. */
static pthread_barrier_t done;

static void *work_in_a_thread(void *unused) {
    thread = ++begun;
    work();
    pthread_barrier_wait(&done);
    struct timespec while_memory_decays = {0, 300 * 1000 * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &while_memory_decays, NULL);
    work();
    return unused;
}

static void work_in_threads(void) {
    pthread_t threads[CREW];
    CHECK(pthread_barrier_init(&done, NULL, CREW) == 0);
    for (int i = 0; i < CREW; i++)
        CHECK(pthread_create(&threads[i], NULL, work_in_a_thread, NULL) == 0);
    for (int i = 0; i < CREW; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    deny = strcmp(argv[1], "deny") == 0;
    shrinks = strcmp(argv[1], "allow-shrinking") == 0;
    nodes = argv[3][0] - '0';
    if (strcmp(argv[2], "inherited") == 0) {
        enter(1);
        argv[2] = "inside";
        execv(argv[0], argv);
        CHECK(!"execv comes back");
    }
    if (strcmp(argv[2], "first") == 0)
        enter(0);
    work();
    work_in_threads();
    if (strcmp(argv[2], "later") == 0)
        enter(0);
    work_in_threads();
    work();
    malloc_trim(0);
    CHECK(write(1, "lives\n", 6) == 6);
    _exit(0);
}
