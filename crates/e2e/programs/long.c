/* Several threads allocate blocks of mebibytes, zeroed or not, and align, resize and free them,
 * while the process forks and its children do the same. Every block keeps its contents, and a
 * zeroed one is zero. The allocator moves freed memory to where the next block needs it
 * (`heap/runs/moves.rs`), and the program must not notice. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"

enum { THREADS = 4, BLOCKS = 6, STEPS = 150, CHILD_STEPS = 40, CHILDREN = 10, STRIDE = 2048 };
#define MIB ((size_t)1 << 20)

typedef struct {
    char *bytes;
    size_t size;
    uint64_t mark;
} Block;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void mark(Block *block, uint64_t number) {
    block->mark = number;
    for (size_t i = 0; i + 8 <= block->size; i += STRIDE)
        memcpy(block->bytes + i, &(uint64_t){number ^ i}, 8);
}

static void verify(const Block *block, const char *bytes) {
    for (size_t i = 0; i + 8 <= block->size; i += STRIDE)
        CHECK(memcmp(bytes + i, &(uint64_t){block->mark ^ i}, 8) == 0);
}

static void take(Block *block, uint64_t *state) {
    block->size = MIB + next(state) % (12 * MIB);
    switch (next(state) % 4) {
    case 0:
        CHECK((block->bytes = calloc(1, block->size)));
        for (size_t i = 0; i < block->size; i += STRIDE / 4)
            CHECK(block->bytes[i] == 0);
        break;
    case 1:
        CHECK(posix_memalign((void **)&block->bytes, 65536, block->size) == 0);
        break;
    default:
        CHECK((block->bytes = malloc(block->size)));
    }
    mark(block, next(state));
}

static void work(uint64_t seed, int steps) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    Block blocks[BLOCKS] = {0};
    for (int step = 0; step < steps; step++) {
        Block *block = &blocks[next(&state) % BLOCKS];
        if (block->bytes && next(&state) % 4 == 0) {
            const size_t longer = block->size + next(&state) % (4 * MIB);
            char *bytes = realloc(block->bytes, longer);
            CHECK(bytes);
            verify(block, bytes);
            block->bytes = bytes;
            block->size = longer;
            mark(block, next(&state));
            continue;
        }
        if (block->bytes) {
            verify(block, block->bytes);
            free(block->bytes);
        }
        take(block, &state);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].bytes)
            verify(&blocks[i], blocks[i].bytes);
        free(blocks[i].bytes);
    }
}

static void *run(void *seed) {
    work((uint64_t)(uintptr_t)seed, STEPS);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, (void *)(i + 1)) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            work(100 + i, CHILD_STEPS);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("every byte is where it was");
    return 0;
}
