/* Runs a program whose system calls stop for its tracer, as a debugger would. For x86-64 alone. */
#ifndef MALLARD_TRACED_H
#define MALLARD_TRACED_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { NOT_ALLOWED = 90 };

static void be_traced(const struct sock_fprog *filter) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0 || raise(SIGSTOP) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter) != 0)
        _exit(NOT_ALLOWED);
}

/* Runs the program `words`, and returns the status with which it ended. `before_call` is called
 * with the thread at each system call that the filter stops (SECCOMP_RET_TRACE), `on_signal`, if
 * there is one, before a thread gets a signal; also for all children. Exits with NOT_ALLOWED if the
 * system does not allow this. */
static int run_traced(char **words, const struct sock_fprog *filter, void (*before_call)(pid_t),
                      void (*on_signal)(pid_t, int)) {
    const pid_t program = fork();
    CHECK(program >= 0);
    if (program == 0) {
        be_traced(filter);
        execvp(words[0], words);
        _exit(127);
    }
    int status;
    CHECK(waitpid(program, &status, 0) == program);
    if (WIFEXITED(status))
        exit(WEXITSTATUS(status));
    const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    if (ptrace(PTRACE_SETOPTIONS, program, 0, options) != 0)
        exit(NOT_ALLOWED);
    for (pid_t stopped = program; stopped > 0;) {
        int to_deliver = 0;
        if (WIFSTOPPED(status)) {
            to_deliver = WSTOPSIG(status);
            if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8))
                before_call(stopped);
            /* The stops of ptrace itself, and those of a process that it begins to trace. */
            if (status >> 16 != 0 || to_deliver == SIGSTOP || to_deliver == SIGTRAP)
                to_deliver = 0;
            if (to_deliver != 0 && on_signal)
                on_signal(stopped, to_deliver);
            ptrace(PTRACE_CONT, stopped, 0, to_deliver);
        } else if (stopped == program) {
            return status;
        }
        stopped = waitpid(-1, &status, __WALL);
    }
    exit(NOT_ALLOWED);
}

/* Ends as the program with this status did. */
static int end_as(int status) {
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

#endif
