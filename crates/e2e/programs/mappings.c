/* How many mappings a process has after a pattern of large blocks, and whether more are possible.
 *
 *   mappings turnover            3 GiB of blocks of 64 KiB to 16 MiB, with random lifetimes and
 *                                reallocs, through a few hundred MiB
 *   mappings grow COUNT FROM TO  COUNT buffers grown by realloc between these MiB, in turns
 *   mappings fork COUNT FROM TO  the same in the child of a fork that inherits as many
 *
 * Prints the number of mappings: "most" (the sampled maximum), "end" (at the end) and "freed"
 * (after everything was freed). */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "check.h"

static char text[1 << 16];

static int mappings(void) {
    int file = open("/proc/self/maps", O_RDONLY);
    int lines = 0;
    ssize_t n;
    CHECK(file >= 0);
    while ((n = read(file, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    close(file);
    return lines;
}

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A word in each page identifies the page and its block. */
static void fill(char *p, size_t from, size_t size, size_t mark) {
    for (size_t at = from; at < size; at += 4096)
        *(size_t *)(p + at) = mark + at;
}

static void expect(const char *p, size_t size, size_t mark) {
    for (size_t at = 0; at < size; at += 4096)
        CHECK(*(const size_t *)(p + at) == mark + at);
}

static void *nothing(void *p) { return p; }

/* Threads and the program's own mappings are always possible. */
static void others(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    void *maps[200];
    for (int i = 0; i < 200; i++) {
        /* Alternate protections keep the kernel from merging them. */
        maps[i] =
            mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(maps[i] != MAP_FAILED);
    }
    for (int i = 0; i < 200; i++)
        munmap(maps[i], 4096);
}

enum { SLOTS = 80 };

static void turnover(void) {
    static char *blocks[SLOTS];
    static size_t sizes[SLOTS];
    size_t through = 0;
    int most = 0;
    for (int step = 0; through < (size_t)3 << 30; step++) {
        int i = next() % SLOTS;
        size_t size = ((size_t)64 << 10) << (next() % 8);
        size += next() % size & ~(uint64_t)4095;
        expect(blocks[i], sizes[i], i);
        if (next() % 4 == 0 && size > sizes[i]) {
            blocks[i] = realloc(blocks[i], size);
            CHECK(blocks[i]);
            expect(blocks[i], sizes[i], i);
            fill(blocks[i], sizes[i], size, i);
        } else {
            free(blocks[i]);
            blocks[i] = malloc(size);
            CHECK(blocks[i]);
            fill(blocks[i], 0, size, i);
        }
        through += size;
        sizes[i] = size;
        int now = step % 16 ? 0 : mappings();
        most = now > most ? now : most;
    }
    int end = mappings();
    others();
    for (int i = 0; i < SLOTS; i++) {
        expect(blocks[i], sizes[i], i);
        free(blocks[i]);
    }
    printf("most %d end %d freed %d\n", most, end, mappings());
}

/* Buffers in which the last page and one page per 2 MiB are written. */
static char **grown(size_t count, size_t from, size_t to) {
    char **buffers = calloc(count, sizeof *buffers);
    size_t before = 0;
    CHECK(buffers);
    for (size_t size = from; size <= to; before = size, size += size / 2)
        for (size_t i = 0; i < count; i++) {
            char *p = buffers[i] = realloc(buffers[i], size);
            CHECK(p);
            for (size_t at = 0; at < before; at += 1 << 21)
                CHECK(*(size_t *)(p + at) == i + at);
            for (size_t at = before; at < size; at++) {
                at = (at + (1 << 21) - 1) & ~(((size_t)1 << 21) - 1);
                if (at < size)
                    *(size_t *)(p + at) = i + at;
            }
        }
    return buffers;
}

static void grow(size_t count, size_t from, size_t to) {
    char **buffers = grown(count, from, to);
    int end = mappings();
    others();
    for (size_t i = 0; i < count; i++)
        free(buffers[i]);
    free(buffers);
    printf("most %d end %d freed %d\n", end, end, mappings());
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    size_t from = argc > 3 ? strtoul(argv[3], NULL, 10) << 20 : 0;
    size_t to = argc > 4 ? strtoul(argv[4], NULL, 10) << 20 : 0;
    if (strcmp(argv[1], "turnover") == 0) {
        turnover();
    } else if (strcmp(argv[1], "grow") == 0) {
        grow(count, from, to);
    } else {
        char **buffers = grown(count, from, to);
        pid_t child = fork();
        int status = 0;
        CHECK(child >= 0);
        if (child == 0) {
            grow(count, from, to);
            fflush(stdout);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        for (size_t i = 0; i < count; i++)
            free(buffers[i]);
    }
    return 0;
}
