// Threads parse messages, as many others send and free them.
//   relay THREADS MESSAGES
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARTS 100

static int parsed[2], messages;

static void *parse(void *unused) {
    (void)unused;
    for (int i = 0; i < messages; i++) {
        char **message = (char **)malloc(PARTS * sizeof *message);
        for (int j = 0; j < PARTS; j++) {
            size_t size = 20 + (size_t)(i + j) * 37 % 400;
            message[j] = (char *)malloc(size);
            memset(message[j], j, size);
        }
        if (write(parsed[1], &message, sizeof message) != sizeof message)
            abort();
    }
    return 0;
}

static void *deliver(void *unused) {
    (void)unused;
    char **message;
    for (int i = 0; i < messages; i++) {
        if (read(parsed[0], &message, sizeof message) != sizeof message)
            abort();
        for (int j = 0; j < PARTS; j++)
            free(message[j]);
        free(message);
    }
    return 0;
}

int main(int count, char **words) {
    int all = count > 2 ? atoi(words[1]) : 0;
    pthread_t threads[128];
    if (all < 1 || all > 64 || pipe(parsed) != 0)
        return 2;
    // No more than 512 messages wait.
    fcntl(parsed[1], F_SETPIPE_SZ, 4096);
    messages = atoi(words[2]);
    for (int i = 0; i < 2 * all; i++)
        pthread_create(&threads[i], 0, i % 2 ? deliver : parse, 0);
    for (int i = 0; i < 2 * all; i++)
        pthread_join(threads[i], 0);
    return 0;
}
