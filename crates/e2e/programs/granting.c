/* Runs a program as on a system that grants every request for memory (`vm.overcommit_memory=1`,
 * which is a setting of the whole system), and counts system calls. As a debugger would, it adds
 * MAP_NORESERVE to each mapping that the program asks for: the system does not account for these.
 *
 *     granting PROGRAM ARGUMENT...
 *
 * A program that calls close(COUNT_BEGIN) and then close(COUNT_END) gets the number of its system
 * calls in between as a line on the standard error: "N system calls". Exits as the program does;
 * with 90 if the system does not allow any of this. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "check.h"
#include "granting.h"

enum { NOT_ALLOWED = 90 };

/* Every system call of the program stops for its tracer. */
static void be_traced(void) {
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)};
    const struct sock_fprog filter = {1, code};
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0 || raise(SIGSTOP) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0)
        _exit(NOT_ALLOWED);
}

/* The count since COUNT_BEGIN; negative outside. */
static long counted = -1;

static void before_call(pid_t program) {
    struct user_regs_struct registers;
    CHECK(ptrace(PTRACE_GETREGS, program, 0, &registers) == 0);
    const int number = (int)registers.orig_rax, argument = (int)registers.rdi;
    if (number == SYS_close && argument == COUNT_BEGIN) {
        counted = 0;
    } else if (number == SYS_close && argument == COUNT_END) {
        dprintf(STDERR_FILENO, "%ld system calls\n", counted);
        counted = -1;
    } else if (counted >= 0) {
        counted++;
    }
    if (number == SYS_mmap && !(registers.r10 & MAP_NORESERVE)) {
        registers.r10 |= MAP_NORESERVE;
        CHECK(ptrace(PTRACE_SETREGS, program, 0, &registers) == 0);
    }
}

int main(int count, char **arguments) {
    CHECK(count > 1);
    const pid_t program = fork();
    CHECK(program >= 0);
    if (program == 0) {
        be_traced();
        execv(arguments[1], arguments + 1);
        _exit(127);
    }
    int status;
    CHECK(waitpid(program, &status, 0) == program);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    if (ptrace(PTRACE_SETOPTIONS, program, 0, options) != 0)
        return NOT_ALLOWED;
    for (pid_t stopped = program; stopped > 0;) {
        int to_deliver = 0;
        if (WIFSTOPPED(status)) {
            to_deliver = WSTOPSIG(status);
            if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8))
                before_call(stopped);
            /* The stops of ptrace itself, and those of a process that it begins to trace. */
            if (status >> 16 != 0 || to_deliver == SIGSTOP || to_deliver == SIGTRAP)
                to_deliver = 0;
            ptrace(PTRACE_CONT, stopped, 0, to_deliver);
        } else if (stopped == program) {
            if (WIFEXITED(status))
                return WEXITSTATUS(status);
            signal(WTERMSIG(status), SIG_DFL);
            raise(WTERMSIG(status));
            return 128 + WTERMSIG(status);
        }
        stopped = waitpid(-1, &status, __WALL);
    }
    return NOT_ALLOWED;
}
