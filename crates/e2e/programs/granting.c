/* Runs a program as on a system that grants every request for memory (`vm.overcommit_memory=1`,
 * which is a setting of the whole system), and counts system calls. As a debugger would, it adds
 * MAP_NORESERVE to each mapping that the program asks for: the system does not account for these.
 *
 *     granting PROGRAM ARGUMENT...
 *
 * A program that calls close(COUNT_BEGIN) and then close(COUNT_END) gets the number of its system
 * calls in between as a line on the standard error: "N system calls". Exits as the program does;
 * with 90 if the system does not allow any of this. */
#include <stdio.h>
#include <sys/mman.h>

#include "granting.h"
#include "traced.h"

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
    /* Every system call stops. */
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)};
    const struct sock_fprog filter = {1, code};
    return end_as(run_traced(arguments + 1, &filter, before_call, NULL));
}
