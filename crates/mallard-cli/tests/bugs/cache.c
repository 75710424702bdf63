/* Two threads on a cache: one uses an entry while the other one evicts it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    int key;
    int uses;
    char value[56];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *cached;

static struct entry *look_up(int key) {
    pthread_mutex_lock(&lock);
    if (!cached) {
        cached = malloc(sizeof *cached);
        memset(cached, 0, sizeof *cached);
    }
    cached->key = key;
    struct entry *found = cached;
    pthread_mutex_unlock(&lock);
    return found;
}

static void use(struct entry *entry) {
    usleep(200);
    entry->uses++; /* BUG */
}

static void *evict(void *end) {
    while (!__atomic_load_n((int *)end, __ATOMIC_RELAXED)) {
        pthread_mutex_lock(&lock);
        free(cached); /* FREED */
        cached = NULL;
        pthread_mutex_unlock(&lock);
        usleep(50);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    int end = 0;
    pthread_create(&thread, NULL, evict, &end);
    for (int i = 0; i < 400; i++)
        use(look_up(i));
    __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
