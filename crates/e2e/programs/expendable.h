/* For programs that test what is left of a machine's memory. */
#ifndef MALLARD_E2E_EXPENDABLE_H
#define MALLARD_E2E_EXPENDABLE_H

#include <fcntl.h>
#include <unistd.h>

/* The process ends after some seconds, whatever it hangs in; and if memory runs out for good, the
 * system ends this process and no other. */
static void be_expendable(unsigned seconds) {
    alarm(seconds);
    const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    /* Where this is not allowed, the process is as any other. */
    const ssize_t written = write(file, "1000", 4);
    (void)written;
    close(file);
}

#endif
