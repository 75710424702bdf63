/* The small parent of every measured process.
 *
 * The kernel includes a parent's memory at the fork in the child's peak, so a program started from
 * a large process reports its parent's peak as its own. This parent is linked statically and takes
 * well under a MiB, so it never affects a peak.
 *
 *     launcher run REPORT TIMEOUT_MS CPUS SETTING… -- PROGRAM ARGUMENT…
 *     launcher weigh REPORT TIMEOUT_MS CPUS SETTING… -- PROGRAM ARGUMENT…
 *     launcher count REPORT TIMEOUT_MS CPUS SETTING… -- PROGRAM ARGUMENT…
 *     launcher warm BYTES
 *
 * `run` starts PROGRAM (looked up in PATH if it has no slash) in a session of its own on the CPUs
 * `0,1,5` (or `-` for all). Each SETTING changes only PROGRAM's environment: `+NAME=VALUE` sets,
 * `-NAME` removes. The launcher waits, kills the whole process group after TIMEOUT_MS (0: never) or
 * on a signal to stop, and writes `name=value` to the file REPORT: the process id at the start,
 * everything else at the end. Processes that PROGRAM leaves behind, in whatever session, get a
 * moment to end; then they are killed, and `left=NAME` reports each. Its own exit code is 0
 * whenever it has written the report. Standard input, output and error are the program's.
 *
 * `weigh` does the same and also reads the exact peak of the program's memory. The kernel counts
 * pages per CPU and adds them to the total 32 at a time, so the peak that a parent sees lacks up to
 * a quarter of a MiB, which varies by run. /proc has the exact total, but only for a process that
 * still exists. So the launcher stops the program's main thread just before it exits, as a debugger
 * would (ptrace). If that is not permitted, it reports the peak that a parent sees.
 *
 * `count` works like `run` and counts the system calls of the program, its threads and its
 * children, as a debugger would (ptrace). That makes each call many times as expensive, so the
 * times mean nothing. After CALLS_MAX it stops tracing and reports that number. If tracing is not
 * permitted, it runs nothing and the report says `permitted=0`.
 *
 * `warm` touches BYTES of memory, so that the machine backs them, and frees them by exiting. The
 * next process then need not wait for the host of a virtual machine to provide memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int die(const char *what) {
    dprintf(2, "launcher: %s: %s\n", what, strerror(errno));
    return 125;
}

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int pin(const char *list) {
    if (strcmp(list, "-") == 0)
        return 0;
    enum { MOST = 8192 };
    cpu_set_t *set = CPU_ALLOC(MOST);
    size_t size = CPU_ALLOC_SIZE(MOST);
    if (!set)
        return -1;
    CPU_ZERO_S(size, set);
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned long cpu = strtoul(list, &end, 10);
        if (end == list || cpu >= MOST) {
            errno = EINVAL;
            return -1;
        }
        CPU_SET_S(cpu, size, set);
    }
    return sched_setaffinity(0, size, set);
}

/* Returns only on failure, with errno of the step that failed. With a `gate`, waits until its other
 * end is closed. */
static void become(const char *cpus, char **settings, char **program, const sigset_t *mask,
                   int gate) {
    setsid();
    if (pin(cpus) != 0)
        return;
    for (; strcmp(*settings, "--") != 0; settings++) {
        if ((*settings)[0] == '-')
            unsetenv(*settings + 1);
        else
            putenv(*settings + 1);
    }
    char end;
    if (gate >= 0 && read(gate, &end, 1) != 0)
        return;
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(program[0], program);
}

/* The outcome of the program's run. */
typedef struct {
    int status, timed_out, stopped;
    struct rusage usage;
    long peak_kib; /* the exact peak; 0 if unknown */
    long long calls;
} Outcome;

static void kill_all(pid_t child) {
    kill(-child, SIGKILL);
    kill(child, SIGKILL); /* it may not have reached setsid yet */
}

/* The exact peak of a process's memory; 0 if the system does not provide it. */
static long exact_peak_kib(pid_t process) {
    char path[40], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0)
        return 0;
    text[size] = 0;
    const char title[] = "\nVmHWM:", *line = strstr(text, title);
    return line ? strtol(line + sizeof title - 1, NULL, 10) : 0;
}

/* Resumes the program's main thread, which stopped before its exit or at a signal. */
static void let_pass(pid_t child, Outcome *outcome) {
    const int signal = WSTOPSIG(outcome->status), event = outcome->status >> 16;
    if (event == PTRACE_EVENT_EXIT)
        outcome->peak_kib = exact_peak_kib(child);
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
        ptrace(PTRACE_LISTEN, child, 0, 0); /* it stays stopped until SIGCONT */
    else
        ptrace(PTRACE_CONT, child, 0, event == 0 ? signal : 0);
}

/* Processes whose parents have ended become the launcher's children, which must wait for them. */
static void reap_orphans(pid_t child) {
    for (;;) {
        siginfo_t ended = {0};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0 ||
            ended.si_pid == child)
            return;
        waitpid(ended.si_pid, NULL, WNOHANG);
    }
}

/* Waits for the program's end, or for one of the blocked `events`. */
static int await(pid_t child, long long deadline, const sigset_t *events, Outcome *outcome) {
    for (;;) {
        const int killed = outcome->timed_out || outcome->stopped; /* then only wait for its end */
        pid_t ended = wait4(child, &outcome->status, killed ? 0 : WNOHANG, &outcome->usage);
        if (ended == child && WIFSTOPPED(outcome->status)) {
            let_pass(child, outcome);
            continue;
        }
        if (ended == child)
            return 0;
        if (ended < 0 && errno != EINTR)
            return -1;
        if (killed)
            continue;
        reap_orphans(child);
        int event;
        if (deadline) {
            long long left = deadline - now_ns();
            if (left < 0)
                left = 0;
            struct timespec wait = {left / 1000000000, left % 1000000000};
            event = sigtimedwait(events, NULL, &wait);
        } else {
            event = sigwaitinfo(events, NULL);
        }
        if (event < 0 && errno == EAGAIN)
            outcome->timed_out = 1;
        else if (event == SIGTERM || event == SIGINT || event == SIGHUP)
            outcome->stopped = 1;
        if (outcome->timed_out || outcome->stopped)
            kill_all(child);
    }
}

/* ---- counting system calls ------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop;

static void on_stop(int signal) {
    if (signal != SIGALRM)
        asked_to_stop = 1;
}

/* The signals that end the wait interrupt it. The alarm repeats, so a signal just before a wait is
 * noticed late but not lost. */
static void listen_for_stops(void) {
    struct sigaction action = {.sa_handler = on_stop};
    const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &action, NULL);
        sigaddset(&set, signals[i]);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    const struct itimerval often = {{0, 100000}, {0, 100000}};
    setitimer(ITIMER_REAL, &often, NULL);
}

/* A traced call takes a tenth of a millisecond, and much more on some machines. */
#define CALLS_MAX 20000

/* Resumes a stopped thread, and counts if it stopped on entry to a system call. */
static void go_on(pid_t thread, int status, int *begun, long long *calls) {
    const int signal = WSTOPSIG(status), event = status >> 16;
    int deliver = 0;
    if (signal == (SIGTRAP | 0x80)) {
        struct __ptrace_syscall_info info;
        long size = ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
        /* Calls of the launcher's child before it becomes the program do not count. */
        if (size > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY && *begun && *calls < CALLS_MAX)
            ++*calls;
    } else if (event == PTRACE_EVENT_EXEC) {
        *begun = 1;
    } else if (event == PTRACE_EVENT_STOP) {
        /* Either a new thread's first stop or a group stop. In a group stop the thread stays
         * stopped. */
        if (signal != SIGTRAP) {
            ptrace(PTRACE_LISTEN, thread, 0, 0);
            return;
        }
    } else if (event == 0) {
        deliver = signal;
    }
    ptrace(*calls < CALLS_MAX ? PTRACE_SYSCALL : PTRACE_DETACH, thread, 0, deliver);
}

/* Traces the program and everything it starts until the program ends. */
static int follow(pid_t child, long long deadline, Outcome *outcome) {
    int begun = 0;
    listen_for_stops();
    for (;;) {
        int status;
        struct rusage usage;
        pid_t thread = wait4(-1, &status, __WALL, &usage);
        if (thread < 0 && errno != EINTR)
            return -1;
        if (!outcome->stopped && !outcome->timed_out) {
            outcome->stopped = asked_to_stop;
            outcome->timed_out = !asked_to_stop && deadline && now_ns() > deadline;
            if (outcome->stopped || outcome->timed_out)
                kill_all(child);
        }
        if (thread < 0)
            continue;
        if (WIFSTOPPED(status)) {
            go_on(thread, status, &begun, &outcome->calls);
        } else if (thread == child) {
            outcome->status = status;
            outcome->usage = usage;
            return 0;
        }
    }
}

/* ---- what the program leaves behind --------------------------------------------------------- */

/* Descendants whose parents have ended become the launcher's children (PR_SET_CHILD_SUBREAPER), and
 * are listed in /proc. Calls `each` for those that still run. Returns their number, or -1 if the
 * kernel has no such list. */
static int children(void (*each)(pid_t child, int out), int out) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0)
        return 0;
    text[size] = 0;
    int count = 0;
    for (char *at = text, *end; *at; at = end) {
        const pid_t child = (pid_t)strtol(at, &end, 10);
        if (end == at)
            break;
        count++;
        if (each)
            each(child, out);
    }
    return count;
}

static void name_one(pid_t child, int out) {
    char path[40], name[32];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)child);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? -1 : read(file, name, sizeof name - 1);
    if (file >= 0)
        close(file);
    if (size <= 0)
        return;
    name[size] = 0;
    name[strcspn(name, "\n")] = 0;
    for (char *c = name; *c; c++)
        if (*c == ' ' || *c == '=')
            *c = '_';
    dprintf(out, "left=%s(%d) ", name, (int)child);
}

static void kill_one(pid_t child, int out) {
    (void)out;
    kill(child, SIGKILL);
}

static void reap(void) {
    while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
        ;
}

/* Ends what the program left behind: nothing may run beside the next measurement. */
static void clean_up(pid_t child, int out, int killed) {
    const struct timespec moment = {0, 5000000};
    if (killed)
        kill(-child, SIGKILL);
    for (int tries = 0; tries < 100; tries++) {
        reap();
        const int left = children(NULL, out);
        if (left == 0)
            return;
        if (left < 0)
            break;
        nanosleep(&moment, NULL);
        if (killed && tries >= 2)
            break;
    }
    reap();
    if (!killed)
        children(name_one, out);
    kill(-child, SIGKILL);
    /* A killed process leaves its own children to the launcher. */
    for (int tries = 0; tries < 400 && children(kill_one, out) > 0; tries++) {
        nanosleep(&moment, NULL);
        reap();
    }
}

/* ---------------------------------------------------------------------------------------------- */

typedef enum { RUN, WEIGH, COUNT } Purpose;

static int run(char **arguments, int count, Purpose purpose) {
    const int counting = purpose == COUNT, watched = purpose != RUN;
    if (count < 5)
        return errno = EINVAL, die("usage");
    const char *report = arguments[0];
    const long long timeout_ms = atoll(arguments[1]);
    char **settings = arguments + 3, **program = settings;
    while (*program && strcmp(*program, "--") != 0)
        program++;
    if (!*program || !program[1])
        return errno = EINVAL, die("no program");
    program++;

    int out = open(report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0)
        return die(report);

    sigset_t events, before;
    sigemptyset(&events);
    sigaddset(&events, SIGCHLD);
    sigaddset(&events, SIGTERM);
    sigaddset(&events, SIGINT);
    sigaddset(&events, SIGHUP);
    sigprocmask(SIG_BLOCK, &events, &before);
    /* If the lab was started with SIGCHLD ignored, the kernel would reap the program unnoticed. */
    signal(SIGCHLD, SIG_DFL);
    /* If the lab dies, its measured process dies too. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);

    int failure[2]; /* carries errno from a child that could not execute the program */
    int gate[2] = {-1, -1};
    if (pipe2(failure, O_CLOEXEC) != 0 || (watched && pipe2(gate, O_CLOEXEC) != 0))
        return die("pipe");

    const long long start = now_ns();
    pid_t child = fork();
    if (child < 0)
        return die("fork");
    if (child == 0) {
        if (watched)
            close(gate[1]);
        become(arguments[2], settings, program, &before, gate[0]);
        int error = errno;
        _exit(write(failure[1], &error, sizeof error) == sizeof error ? 127 : 126);
    }
    close(failure[1]);

    const long long deadline = timeout_ms > 0 ? start + timeout_ms * 1000000 : 0;
    Outcome outcome = {0};
    if (watched)
        close(gate[0]);
    if (purpose == WEIGH)
        ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
    if (counting) {
        const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE |
                             PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
        if (ptrace(PTRACE_SEIZE, child, 0, options) != 0) {
            kill_all(child);
            dprintf(out, "permitted=0\n");
            return 0;
        }
        /* Stopping at system calls can only be requested of a stopped thread. */
        ptrace(PTRACE_INTERRUPT, child, 0, 0);
    }
    if (watched)
        close(gate[1]);
    dprintf(out, "pid=%d ", (int)child);
    if ((counting ? follow(child, deadline, &outcome)
                  : await(child, deadline, &events, &outcome)) != 0)
        return die("wait4");
    const long long wall = now_ns() - start;
    clean_up(child, out, outcome.timed_out || outcome.stopped);

    int error = 0;
    if (read(failure[0], &error, sizeof error) != sizeof error)
        error = 0;
    const int status = outcome.status;
    const struct rusage *usage = &outcome.usage;
    const long peak_kib = usage->ru_maxrss > outcome.peak_kib ? usage->ru_maxrss : outcome.peak_kib;
    if (counting)
        dprintf(out, "permitted=1 calls=%lld ", outcome.calls);
    dprintf(out,
            "exit=%d signal=%d error=%d timed_out=%d stopped=%d wall_ns=%lld user_us=%lld "
            "system_us=%lld "
            "peak_kib=%ld minor=%ld major=%ld\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            error, outcome.timed_out, outcome.stopped, wall,
            (long long)usage->ru_utime.tv_sec * 1000000 + usage->ru_utime.tv_usec,
            (long long)usage->ru_stime.tv_sec * 1000000 + usage->ru_stime.tv_usec, peak_kib,
            usage->ru_minflt, usage->ru_majflt);
    return 0;
}

static int warm(const char *text) {
    const size_t bytes = strtoull(text, NULL, 10), page = (size_t)sysconf(_SC_PAGESIZE);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return die("mmap");
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += page)
        ((volatile char *)memory)[at] = 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], "run") == 0)
        return run(argv + 2, argc - 2, RUN);
    if (argc >= 2 && strcmp(argv[1], "weigh") == 0)
        return run(argv + 2, argc - 2, WEIGH);
    if (argc >= 2 && strcmp(argv[1], "count") == 0)
        return run(argv + 2, argc - 2, COUNT);
    if (argc == 3 && strcmp(argv[1], "warm") == 0)
        return warm(argv[2]);
    errno = EINVAL;
    return die("usage: launcher run … | launcher weigh … | launcher count … | launcher warm BYTES");
}
