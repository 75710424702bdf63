/* For programs that test what is left of a machine's memory. */
#ifndef MALLARD_E2E_EXPENDABLE_H
#define MALLARD_E2E_EXPENDABLE_H

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "measured.h"

enum { TICKS_PER_SECOND = 20, FAILED = 99 };
static const size_t expendable_bytes = (size_t)2 << 30;
static unsigned ticks_left;

static void end_in_time(int number) {
    (void)number;
    if (ticks_left-- == 0) {
        dprintf(STDERR_FILENO, "not over in its time\n");
        _exit(FAILED);
    }
    if (resident() > expendable_bytes) {
        dprintf(STDERR_FILENO, "more than 2 GiB of memory\n");
        _exit(FAILED);
    }
}

/* The process ends after some seconds, whatever it hangs in, and before it takes the machine's
 * memory. If memory runs out all the same, the system ends this process and no other. */
static void be_expendable(unsigned seconds) {
    ticks_left = seconds * TICKS_PER_SECOND;
    struct sigaction action = {};
    action.sa_handler = end_in_time;
    action.sa_flags = SA_RESTART;
    const struct timeval tick = {0, 1000000 / TICKS_PER_SECOND};
    const struct itimerval timer = {tick, tick};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
    const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    /* Where this is not allowed, the process is as any other. */
    const ssize_t written = write(file, "1000", 4);
    (void)written;
    close(file);
}

#endif
