/* One thread writes into a task that another one has freed. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

struct task {
    long number;
    long result;
    char text[40];
};

static sem_t given, taken;
static struct task *current;

static void finish(struct task *task) { task->result = 42; /* BUG */ }

static void *work(void *unused) {
    (void)unused;
    sem_wait(&given);
    struct task *task = current;
    sem_post(&taken);
    sem_wait(&given);
    finish(task);
    return NULL;
}

static void cancel(struct task *task) { free(task); /* FREED */ }

int main(void) {
    pthread_t thread;
    sem_init(&given, 0, 0);
    sem_init(&taken, 0, 0);
    pthread_create(&thread, NULL, work, NULL);
    current = calloc(1, sizeof(struct task));
    sem_post(&given);
    sem_wait(&taken);
    cancel(current);
    sem_post(&given);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
