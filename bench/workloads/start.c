/* start: starts and ends a trivial program many times, as scripts do. Shows how long an allocator
 * takes to initialise, and how much memory it needs for one block.
 *
 *     count   children, one at a time (250)
 *
 * The program starts itself as its child by posix_spawn, with the same environment and so the same
 * allocator. The child allocates a block, frees it and ends. `child_rss_bytes` is the peak of one
 * more child, off the clock, which reads its own VmHWM. wait4 could report this process's larger
 * peak, since a child's accounting begins before it executes its own program. */
#include "memory.h"

#include <spawn.h>
#include <sys/wait.h>

enum { COUNT, PARAMS };
static Param params[PARAMS] = {
    {"count", 250, 1, UINT64_C(1) << 40},
};

extern char **environ;

static int child(int tell) {
    drop(make(100));
    if (tell) {
        const uint64_t peak = proc_bytes("/proc/self/status", "VmHWM:");
        if (write(STDOUT_FILENO, &peak, sizeof peak) != (ssize_t)sizeof peak)
            return 3;
    }
    return 0;
}

static void run_child(const char *what, posix_spawn_file_actions_t *actions) {
    char *const arguments[] = {(char *)"start", (char *)what, NULL};
    pid_t pid;
    int status;
    const int error = posix_spawn(&pid, "/proc/self/exe", actions, NULL, arguments, environ);
    if (error)
        fail("cannot start a child", strerror(error));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("cannot wait for a child", strerror(errno));
    if (status)
        fail("a child has failed", "it allocates one block, checks it and frees it");
}

static uint64_t child_peak(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        fail("pipe", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    run_child("tell", &actions);
    posix_spawn_file_actions_destroy(&actions);
    uint64_t peak;
    if (read(ends[0], &peak, sizeof peak) != (ssize_t)sizeof peak)
        fail("a child printed nothing", "its peak was expected");
    close(ends[0]);
    close(ends[1]);
    return peak;
}

int main(int argc, char **argv) {
    if (argc == 2 && (strcmp(argv[1], "child") == 0 || strcmp(argv[1], "tell") == 0))
        return child(argv[1][0] == 't');
    parse_params(argc, argv, params, PARAMS);
    const uint64_t count = params[COUNT].value;
    const double start = now();
    for (uint64_t i = 0; i < count; i++)
        run_child("child", NULL);
    const double seconds = now() - start;
    printf("child_rss_bytes %llu\n", (unsigned long long)child_peak());
    print_all(seconds, 2 * count);
    return 0;
}
