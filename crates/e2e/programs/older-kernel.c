/* older-kernel RELEASE COMMAND...: runs the command as if the kernel were of that release: newer
 * system calls answer ENOSYS, newer advice to madvise and flags of mremap EINVAL. System calls are
 * numbered in the order in which Linux got them. From 335 to 423 there is none on the two
 * architectures here but x86-64's uretprobe (335, Linux 6.11), which the kernel alone uses: of
 * "5.4" it is let through. What /proc has, and other flags, stay the real kernel's. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FREE = 8, NONE = 1000, DONT_UNMAP = 4 };

/* The last call of the release, by architecture; the last advice to madvise, and one before it that
 * came later. */
static const struct kernel {
    const char *release;
    unsigned x86_64, aarch64, advice, missing;
} kernels[] = {
    {"3.10", 313, 273, 17, FREE},
    {"4.14", 332, 291, 19, NONE},
    {"5.4", 435, 435, 21, NONE},
};

static const struct kernel *find(const char *release) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].release, release) == 0)
            return &kernels[i];
    return NULL;
}

int main(int count, char **arguments) {
    const struct kernel *kernel = count > 2 ? find(arguments[1]) : NULL;
    if (kernel == NULL)
        return fprintf(stderr, "older-kernel RELEASE COMMAND...\n"), 2;
#ifdef __x86_64__
    unsigned last = kernel->x86_64;
#else
    unsigned last = kernel->aarch64;
#endif
    enum { ADVICE = 5, REMAP = 10, NO_CALL = 13, INVALID = 14 };
#define TO(label, here) ((label) - (here)-1)
    /* Advice 100 and above is of the first kernels that had madvise. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, TO(NO_CALL, 1), 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, TO(ADVICE, 2), 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, TO(REMAP, 3), 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 100, TO(REMAP - 1, 6), 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kernel->advice, TO(INVALID, 7), 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kernel->missing, TO(INVALID, 8), 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, DONT_UNMAP, TO(INVALID, 11), 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    /* Root may filter without giving up what setuid programs need. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0 &&
        (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0)) {
        fprintf(stderr, "no filter: %s\n", strerror(errno));
        return 126;
    }
    execvp(arguments[2], arguments + 2);
    fprintf(stderr, "%s: %s\n", arguments[2], strerror(errno));
    return 127;
}
