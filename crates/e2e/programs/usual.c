/* A typical program of a few mebibytes: two contending threads allocate, resize and free blocks of
 * all sizes up to a mebibyte in random order, for longer than a clock tick, and then the program
 * forks a child. Shows a file of /proc/self at its end. */
#include "show.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { BLOCKS = 64, ROUNDS = 20000 };

static void *work(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    char *block[BLOCKS] = {NULL};
    for (int i = 0; i < ROUNDS; i++) {
        const size_t at = (size_t)rand_r(&state) % BLOCKS, size = (size_t)1 << rand_r(&state) % 17;
        char *resized = realloc(block[at], size);
        if (!resized)
            return seed;
        resized[0] = 1;
        block[at] = resized;
        if (rand_r(&state) % 2) {
            free(block[at]);
            block[at] = NULL;
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        free(block[i]);
    char *large = calloc(1 << 20, 1);
    free(realloc(large, 1 << 19));
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t other;
    void *failed;
    if (count < 2 || pthread_create(&other, NULL, work, (void *)1) != 0)
        return 1;
    if (work((void *)2) || pthread_join(other, &failed) != 0 || failed)
        return 1;
    /* Gives the background thread time to work. */
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    void *aligned;
    if (posix_memalign(&aligned, 1 << 14, 100) != 0)
        return 1;
    free(aligned);
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 1;
    return show(arguments[1]);
}
