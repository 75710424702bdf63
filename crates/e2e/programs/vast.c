/* Blocks that are longer than what the program touches, one part per name.
 *
 *     vast untouched SIZE         prints "null", or the memory that the block costs, in KiB
 *     vast resized SIZE PLACE     grows a block to SIZE and back, and prints "kept"; PLACE is
 *                                 `main`, `thread` or `child`
 *
 * What is printed is the same on every allocator that has no fault. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"
#include "expendable.h"
#include "granting.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { SECONDS_MAX = 60 };

/* The process's own memory in KiB, to the page, read without the allocator. */
static size_t memory(void) {
    static char text[4096];
    const int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    const ssize_t length = read(file, text, sizeof text - 1);
    CHECK(length > 0);
    close(file);
    text[length] = 0;
    const char *line = strstr(text, "\nAnonymous:");
    CHECK(line != NULL);
    return strtoul(line + strlen("\nAnonymous:"), NULL, 10);
}

static void untouched(size_t size) {
    char *volatile before = malloc(16);
    memory();
    const size_t start = memory();
    close(COUNT_BEGIN);
    errno = 0;
    char *volatile block = malloc(size);
    const int error = errno;
    close(COUNT_END);
    const size_t end = memory();
    CHECK(block != NULL || error == ENOMEM);
    if (block == NULL)
        puts("null");
    else
        printf("%zu\n", end - start);
    close(COUNT_BEGIN);
    free(block);
    close(COUNT_END);
    free(before);
}

/* ---- A block that grows and shrinks ---- */

enum { STRIDE = 3000000 };
/* The part that the program touches, beyond which there is only the last byte. */
static const size_t touched_max = 200 * MIB;

static void mark(char *block, size_t from, size_t size) {
    for (size_t at = from - from % STRIDE; at < size && at < touched_max; at += STRIDE)
        if (at >= from)
            block[at] = (char)(at / STRIDE + 1);
}

static void is_marked(const char *block, size_t size) {
    for (size_t at = 0; at < size && at < touched_max; at += STRIDE)
        CHECK(block[at] == (char)(at / STRIDE + 1));
}

typedef struct {
    char *block;
    size_t size;
} Block;

/* A refusal leaves the block as it is. */
static int resize(Block *b, size_t size) {
    errno = 0;
    char *block = realloc(b->block, size);
    if (block == NULL) {
        CHECK(errno == ENOMEM);
        is_marked(b->block, b->size);
        return 0;
    }
    const size_t before = b->size;
    *b = (Block){block, size};
    is_marked(block, before < size ? before : size);
    if (size > before) {
        mark(block, before, size);
        if (size > touched_max)
            block[size - 1] = 'e';
    }
    char *volatile small = malloc(40);
    CHECK(small != NULL);
    free(small);
    return 1;
}

static void resized(size_t longest) {
    Block b = {malloc(64 * MIB), 64 * MIB};
    CHECK(b.block != NULL);
    mark(b.block, 0, b.size);
    for (int round = 0; round < 3; round++) {
        CHECK(resize(&b, 200 * MIB));
        const size_t before = memory();
        if (resize(&b, longest)) {
            /* Its end is new memory, and its start is moved or copied: neither costs more than
             * what the program touched, in huge pages at most. */
            CHECK(memory() <= before + 220 * KIB);
            CHECK(b.block[b.size - 1] == 'e');
        }
        CHECK(!resize(&b, PTRDIFF_MAX));
        CHECK(!resize(&b, SIZE_MAX));
        CHECK(resize(&b, 100 * MIB));
        CHECK(resize(&b, KIB));
        CHECK(resize(&b, 64 * MIB));
    }
    /* By steps, as far as there is memory, and back. */
    while (b.size < longest && resize(&b, b.size * 2)) {}
    while (b.size > KIB)
        CHECK(resize(&b, b.size / 2 + 1));
    free(b.block);
}

static void *resized_in_thread(void *longest) {
    resized(*(size_t *)longest);
    return NULL;
}

static void resized_in(const char *place, size_t longest) {
    if (strcmp(place, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, resized_in_thread, &longest) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    } else if (strcmp(place, "child") == 0) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            be_expendable(SECONDS_MAX);
            resized(longest);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    } else {
        resized(longest);
    }
    puts("kept");
}

int main(int count, char **arguments) {
    CHECK(count > 2);
    be_expendable(SECONDS_MAX);
    const size_t size = strtoul(arguments[2], NULL, 10);
    if (strcmp(arguments[1], "untouched") == 0)
        untouched(size);
    else if (count > 3)
        resized_in(arguments[3], size);
    return 0;
}
