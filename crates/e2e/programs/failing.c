/* failing REPORT CALLS FIRST LAST ERROR PROGRAM ARGUMENT...: runs a program in which system calls
 * fail: from the FIRST on, to the LAST, with this errno. Counted are, of all its threads and
 * children, as they come, from 0 on: if CALLS is `memory`, mmap, munmap, mprotect, mremap and
 * madvise; if it is `sockets`, what a server calls, its thread included.
 *
 * Writes the number of these calls to REPORT, and if the program gets a signal for a fault or an
 * abort, the number of the signal, the address, and the mapping of the instruction. Exits as the
 * program does; with 90 if the system does not allow any of this. For x86-64. */
#include <stdio.h>
#include <string.h>

#include "traced.h"

static long first, last, error, calls;
static FILE *report;

static void before_call(pid_t thread) {
    const long number = calls++;
    if (number < first || number > last)
        return;
    struct user_regs_struct registers;
    CHECK(ptrace(PTRACE_GETREGS, thread, 0, &registers) == 0);
    /* No call, and this result. */
    registers.orig_rax = (unsigned long long)-1;
    registers.rax = (unsigned long long)-error;
    CHECK(ptrace(PTRACE_SETREGS, thread, 0, &registers) == 0);
}

/* Reports a signal, and the mapping of the instruction that it came to. */
static void report_signal(pid_t thread, int signal) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, 0, &registers) != 0)
        return;
    siginfo_t info = {0};
    ptrace(PTRACE_GETSIGINFO, thread, 0, &info);
    const unsigned long long address = signal == SIGSEGV ? (unsigned long long)info.si_addr : 0;
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/%d/maps", (int)thread);
    FILE *maps = fopen(name, "r");
    fprintf(report, "signal %d address %llu at %#llx", signal, address, registers.rip);
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx", &from, &to) == 2 && from <= registers.rip &&
            registers.rip < to)
            fprintf(report, " in %s", line);
    }
    fprintf(report, "\n");
    if (maps != NULL)
        fclose(maps);
}

static int is_fault(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL ||
           signal == SIGFPE || signal == SIGSYS;
}

static void on_signal(pid_t thread, int signal) {
    if (is_fault(signal))
        report_signal(thread, signal);
}

int main(int count, char **arguments) {
    CHECK(count > 6);
    report = fopen(arguments[1], "w");
    CHECK(report != NULL);
    first = atol(arguments[3]), last = atol(arguments[4]), error = atol(arguments[5]);
    /* These calls stop. */
    static const int memory[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise};
    static const int sockets[] = {
        SYS_socket, SYS_setsockopt, SYS_bind,     SYS_listen,     SYS_accept4, SYS_ppoll,
        SYS_sendto, SYS_fcntl,      SYS_shutdown, SYS_getsockopt, SYS_connect, SYS_unlinkat,
        SYS_clone,  SYS_clone3,     SYS_prctl,    SYS_newfstatat, SYS_fstat};
    const int is_memory = strcmp(arguments[2], "memory") == 0;
    CHECK(is_memory || strcmp(arguments[2], "sockets") == 0);
    const int *calls_stopped = is_memory ? memory : sockets;
    const size_t n = is_memory ? sizeof memory / sizeof *memory : sizeof sockets / sizeof *sockets;
    struct sock_filter code[3 + sizeof sockets / sizeof *sockets];
    code[0] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < n; i++)
        code[1 + i] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls_stopped[i], n - i, 0);
    code[1 + n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[2 + n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    const struct sock_fprog filter = {n + 3, code};
    const int status = run_traced(arguments + 6, &filter, before_call, on_signal);
    fprintf(report, "%ld calls\n", calls);
    fclose(report);
    return end_as(status);
}
