/* A program that others watch: it holds memory and allocates until its standard input ends. The
 * first argument says what else it does. It prints a line when that is done. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1024, BLOCKS = 512, BYTES = 64 * KIB, SOME = 3000 };

static void *held[BLOCKS];
static void *small[SOME];

static void hold(void) {
    for (int i = 0; i < BLOCKS; i++) {
        held[i] = malloc(BYTES);
        memset(held[i], 1, BYTES);
    }
}

/* Goes through slow paths, so that the allocator looks at what is due. */
static void work(void) {
    for (int size = 48; size <= 12 * KIB; size *= 2) {
        for (int i = 0; i < SOME; i++)
            small[i] = malloc(size);
        for (int i = 0; i < SOME; i++)
            free(small[i]);
    }
}

static int input_ended(void) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char byte;
    return poll(&in, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

static void work_until_input_ends(void) {
    while (!input_ended()) {
        work();
        usleep(5000);
    }
}

/* Kills the process for the calls that a shared page would need. */
static int forbid(void) {
    static const int calls[] = {SYS_memfd_create, SYS_ftruncate, SYS_fcntl,
                                SYS_fstat,        SYS_getpid,    SYS_openat};
    enum { N = sizeof calls / sizeof *calls };
    struct sock_filter filter[2 * N + 2];
    int n = 0;
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void say(const char *line) {
    /* Not by stdio, which allocates. */
    if (write(1, line, strlen(line)) < 0)
        _exit(3);
}

static void say_number(const char *word, long number) {
    char line[64];
    snprintf(line, sizeof line, "%s %ld\n", word, number);
    say(line);
}

static int work_beside(pid_t child) {
    say_number("child", child);
    work_until_input_ends();
    waitpid(child, NULL, 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "hold";
    if (!strcmp(what, "small")) {
        say("ready\n");
        while (!input_ended())
            usleep(5000);
        return 0;
    }
    if (!strcmp(what, "sealed") && !forbid()) {
        say("no filter\n");
        return 0;
    }
    hold();
    if (!strcmp(what, "fork") || !strcmp(what, "clone")) {
        for (int i = 0; i < 60; i++, usleep(5000))
            work();
        free(held[0]);
        pid_t child =
            !strcmp(what, "fork") ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            /* Half of what the parent holds. */
            for (int i = 1; i < BLOCKS / 2; i++)
                free(held[i]);
            work_until_input_ends();
            _exit(0);
        }
        return work_beside(child);
    }
    if (!strcmp(what, "copies")) {
        /* Until the reader has found the page that the child inherits. */
        say("ready\n");
        struct pollfd in = {.fd = 0, .events = POLLIN};
        char byte;
        while (poll(&in, 1, 5) <= 0)
            work();
        if (read(0, &byte, 1) != 1)
            return 1;
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            while (!input_ended())
                usleep(5000);
            _exit(0);
        }
        return work_beside(child);
    }
    if (!strcmp(what, "closes")) {
        for (int i = 0; i < 60; i++, usleep(5000))
            work();
        for (int file = 3; file < 4096; file++)
            close(file);
        /* The numbers are as they are without an allocator that has files. */
        say_number("opened", open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "execs")) {
        for (int i = 0; i < 60; i++, usleep(5000))
            work();
        execv(argv[0], (char *[]){argv[0], "small", NULL});
    } else {
        say("ready\n");
    }
    work_until_input_ends();
    say("lives\n");
    return 0;
}
