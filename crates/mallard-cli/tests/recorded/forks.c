/* Programs that fork with a live heap. Each block of a process has a size of its own, so that a
 * recording tells which block each call is about. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST = 5000, COUNT = 300, CHILDREN = 3 };

static void *blocks[COUNT];
static size_t next_size = LEAST;

static void *make(void) {
    char *block = malloc(next_size++);
    block[0] = 1;
    return block;
}

/* Frees one in three of the blocks from `begin` on, resizes another one, and makes new ones. */
static void work(int begin) {
    for (int i = begin; i < COUNT; i++) {
        if (i % 3 == begin % 3) {
            free(blocks[i]);
            blocks[i] = NULL;
        } else if (i % 3 == (begin + 1) % 3) {
            blocks[i] = realloc(blocks[i], next_size++);
        }
        if (i % 5 == 0)
            free(make());
        if (!blocks[i])
            blocks[i] = make();
    }
}

static void fill(void) {
    for (int i = 0; i < COUNT; i++)
        blocks[i] = make();
}

static void begin_child(int number) { next_size = LEAST + 10000 * (number + 1); }

static void heap(void) {
    fill();
    for (int child = 0; child < CHILDREN; child++)
        if (fork() == 0) {
            begin_child(child);
            work(child);
            work(0);
            _exit(0);
        }
    work(0);
    while (wait(0) > 0)
        ;
    work(1);
}

static pthread_barrier_t gate;
static int done;

static void *allocate(void *argument) {
    void *ring[16] = {0};
    pthread_barrier_wait(&gate);
    for (size_t i = 0; !__atomic_load_n(&done, __ATOMIC_ACQUIRE) || i < 1000; i++) {
        free(ring[i % 16]);
        ring[i % 16] = malloc(100 + i % 1000);
        if (i > 1000 && i % 64 == 0)
            usleep(50); /* on a busy machine, a fork can take as long as millions of these */
    }
    return argument;
}

static void *fork_in_thread(void *argument) {
    pthread_barrier_wait(&gate);
    for (int child = 0; child < CHILDREN; child++)
        if (fork() == 0) {
            begin_child(child);
            work(child);
            _exit(0);
        } else {
            work(child);
            wait(0);
        }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    return argument;
}

/* The second thread forks while the others allocate; the blocks are the first one's. */
static void thread(void) {
    pthread_t threads[3];
    pthread_barrier_init(&gate, 0, 3);
    fill();
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, i == 1 ? fork_in_thread : allocate, 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    work(0);
}

static void *half(void *argument) {
    for (int i = 0; i < COUNT; i += 2) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    return argument;
}

/* Children of children; one begins a thread that frees what its grandparent has made. */
static void tree(void) {
    fill();
    if (fork() == 0) {
        begin_child(0);
        work(0);
        if (fork() == 0) {
            begin_child(1);
            pthread_t thread;
            pthread_create(&thread, 0, half, 0);
            pthread_join(thread, 0);
            for (int i = 1; i < COUNT; i += 2)
                free(blocks[i]);
            _exit(0);
        }
        work(1);
        wait(0);
        _exit(0);
    }
    work(2);
    wait(0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "heap") == 0)
        heap();
    else if (strcmp(what, "thread") == 0)
        thread();
    else if (strcmp(what, "tree") == 0)
        tree();
    return 0;
}
