// Three children leak, and end in three ways.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile sink;

static void __attribute__((noinline)) leak(void) {
    for (int i = 0; i < 20000; i++)
        sink = malloc(300);
}

int main(void) {
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            leak();
            if (i == 1)
                raise(SIGTERM);
            if (i == 2)
                _exit(4);
            exit(0);
        }
    while (wait(0) > 0) {}
    return 0;
}
