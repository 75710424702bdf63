/* Calls malloc's family a known number of times, and prints what the probe must have counted: live
 * bytes by usable size at the end, as the program itself has added them up. The output is written
 * without the C library's buffers, which are blocks too. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long long live;

static void *took(void *block) {
    if (block)
        __atomic_fetch_add(&live, (long long)malloc_usable_size(block), __ATOMIC_RELAXED);
    return block;
}

static void gave(void *block) {
    __atomic_fetch_sub(&live, (long long)malloc_usable_size(block), __ATOMIC_RELAXED);
    free(block);
}

static void say(const char *what, long long number) {
    char line[100];
    int length = snprintf(line, sizeof line, "%s %lld\n", what, number);
    if (write(1, line, length) != length)
        _exit(9);
}

static void work(unsigned seed) {
    void *blocks[100] = {0};
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned slot = (seed >> 16) % 100, size = (seed >> 8) % 5000;
        if (blocks[slot] && i % 3 == 0) {
            __atomic_fetch_sub(&live, (long long)malloc_usable_size(blocks[slot]),
                               __ATOMIC_RELAXED);
            blocks[slot] = took(realloc(blocks[slot], size + 1));
            continue;
        }
        if (blocks[slot])
            gave(blocks[slot]);
        void *aligned = NULL;
        switch (i % 5) {
        case 0:
            blocks[slot] = took(calloc(size + 1, 2));
            break;
        case 1:
            blocks[slot] = took(aligned_alloc(64, (size / 64 + 1) * 64));
            break;
        case 2:
            if (posix_memalign(&aligned, 256, size) == 0)
                blocks[slot] = took(aligned);
            else
                blocks[slot] = NULL;
            break;
        case 3:
            blocks[slot] = took(memalign(128, size));
            break;
        default:
            blocks[slot] = took(malloc(size));
        }
    }
    for (int i = 0; i < 100; i += 2)
        if (blocks[i])
            gave(blocks[i]);
}

static void *thread(void *argument) {
    work((unsigned)(uintptr_t)argument);
    return NULL;
}

static void *short_thread(void *argument) {
    free(malloc(10 + (uintptr_t)argument % 100));
    return NULL;
}

enum { KEPT = 400000 };
static void *kept[KEPT];

static void *frees_kept(void *unused) {
    for (int i = 0; i < KEPT; i++)
        free(kept[i]);
    return unused;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    free(malloc(1)); /* whatever the start allocates is there now */
    if (strcmp(what, "threads") == 0) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, thread, (void *)(i + 1));
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(what, "short") == 0) {
        for (uintptr_t i = 0; i < 10000; i += 10) {
            pthread_t threads[10];
            for (int j = 0; j < 10; j++)
                if (pthread_create(&threads[j], NULL, short_thread, (void *)(i + j)) != 0)
                    return 3;
            for (int j = 0; j < 10; j++)
                pthread_join(threads[j], NULL);
        }
    } else if (strcmp(what, "fork") == 0) {
        work(7);
        pid_t child = fork();
        if (child == 0) {
            work(8);
            say("child", live);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        work(9);
        say("parent", live);
        return 0;
    } else if (strcmp(what, "leave") == 0) {
        free(malloc(10));
        _exit(0);
    } else if (strcmp(what, "crash") == 0) {
        work(5);
        say("live", live);
        abort();
    } else if (strcmp(what, "errno") == 0) {
        errno = 77;
        void *block = malloc(10);
        free(block);
        say("errno", errno);
        errno = 0;
        say("none", malloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
        return 0;
    } else if (strcmp(what, "peak") == 0) {
        /* Gone before anybody looks: by the thread itself, and by one that frees what another made.
         */
        enum { PEAK_BLOCKS = 20, PEAK_BYTES = 1000000 };
        void *blocks[PEAK_BLOCKS];
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < PEAK_BLOCKS; i++)
                blocks[i] = malloc(PEAK_BYTES);
            for (int i = 0; i < PEAK_BLOCKS; i++)
                free(blocks[i]);
        }
    } else if (strcmp(what, "elsewhere") == 0) {
        /* Half of the blocks are freed at once, at few addresses; another thread frees the rest. */
        for (int i = 0; i < KEPT; i++) {
            free(malloc(100));
            kept[i] = malloc(40);
        }
        pthread_t other;
        pthread_create(&other, NULL, frees_kept, NULL);
        pthread_join(other, NULL);
    } else if (strcmp(what, "exec") == 0) {
        work(4);
        execl(words[0], words[0], "one", NULL);
        return 4;
    } else {
        work(3);
    }
    say("live", live);
    return 0;
}
