/* The small parent of every measured process.
 *
 * The kernel counts the memory of the process that forked into the peak of the one that was forked,
 * so a program started from a large process reports its parent's peak as its own. This one is
 * linked statically, takes well under a MiB, and therefore never shows.
 *
 *     launcher run REPORT TIMEOUT_MS CPUS SETTING… -- PROGRAM ARGUMENT…
 *     launcher warm BYTES
 *
 * `run` starts PROGRAM (looked up in PATH if it has no slash) in a session of its own on the CPUs
 * `0,1,5` (or `-` for all), with each SETTING applied to its environment alone: `+NAME=VALUE` sets,
 * `-NAME` removes. It waits, kills the whole process group after TIMEOUT_MS (0: never) or when it is
 * told to stop itself, and writes one line of `name=value` to the file REPORT. Its own exit code is
 * 0 whenever the report was written. Standard input, output and error are the program's.
 *
 * `warm` makes the machine back BYTES of memory and gives them back by exiting: the next process
 * then does not pay for what the host of a virtual machine has to provide.
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
#include <sys/resource.h>
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

/* Only returns with errno of the step that failed. */
static void become(const char *cpus, char **settings, char **program, const sigset_t *mask) {
    setsid();
    if (pin(cpus) != 0)
        return;
    for (; strcmp(*settings, "--") != 0; settings++) {
        if ((*settings)[0] == '-')
            unsetenv(*settings + 1);
        else
            putenv(*settings + 1);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(program[0], program);
}

static int run(char **arguments, int count) {
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
    /* The lab may have been started with SIGCHLD ignored, which would reap the program unseen. */
    signal(SIGCHLD, SIG_DFL);
    /* If the lab dies, so does what it measures. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);

    int failure[2]; /* carries errno out of a child that could not become the program */
    if (pipe2(failure, O_CLOEXEC) != 0)
        return die("pipe");

    const long long start = now_ns();
    pid_t child = fork();
    if (child < 0)
        return die("fork");
    if (child == 0) {
        become(arguments[2], settings, program, &before);
        int error = errno;
        _exit(write(failure[1], &error, sizeof error) == sizeof error ? 127 : 126);
    }
    close(failure[1]);

    int status = 0, timed_out = 0, stopped = 0;
    struct rusage usage;
    const long long deadline = start + timeout_ms * 1000000;
    for (;;) {
        pid_t ended = wait4(child, &status, WNOHANG, &usage);
        if (ended == child)
            break;
        if (ended < 0 && errno != EINTR)
            return die("wait4");
        if (timed_out || stopped) { /* already killed: only its end is left to wait for */
            while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR)
                ;
            break;
        }
        int event;
        if (timeout_ms > 0) {
            long long left = deadline - now_ns();
            if (left < 0)
                left = 0;
            struct timespec wait = {left / 1000000000, left % 1000000000};
            event = sigtimedwait(&events, NULL, &wait);
        } else {
            event = sigwaitinfo(&events, NULL);
        }
        if (event < 0 && errno == EAGAIN)
            timed_out = 1;
        else if (event == SIGTERM || event == SIGINT || event == SIGHUP)
            stopped = 1;
        if (timed_out || stopped) {
            kill(-child, SIGKILL);
            kill(child, SIGKILL); /* it may not have reached setsid yet */
        }
    }
    const long long wall = now_ns() - start;
    /* What the program left behind must not run beside the next measurement. */
    kill(-child, SIGKILL);

    int error = 0;
    if (read(failure[0], &error, sizeof error) != sizeof error)
        error = 0;
    dprintf(out,
            "exit=%d signal=%d error=%d timed_out=%d stopped=%d wall_ns=%lld user_us=%lld system_us=%lld "
            "peak_kib=%ld minor=%ld major=%ld\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0, error,
            timed_out, stopped, wall, (long long)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec,
            (long long)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec, usage.ru_maxrss,
            usage.ru_minflt, usage.ru_majflt);
    return 0;
}

static int warm(const char *text) {
    const size_t bytes = strtoull(text, NULL, 10), page = 4096;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return die("mmap");
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += page)
        ((volatile char *)memory)[at] = 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], "run") == 0)
        return run(argv + 2, argc - 2);
    if (argc == 3 && strcmp(argv[1], "warm") == 0)
        return warm(argv[2]);
    errno = EINVAL;
    return die("usage: launcher run … | launcher warm BYTES");
}
