/* With hardened:true, memory that nobody has is closed. One part per sub-command; each exits with 0
 * if it went as it should. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"
#include "malloc_more.h"

static sigjmp_buf back;
static volatile uintptr_t fault;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    fault = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

/* The number of bytes from p on that can be written to, up to a limit. */
static size_t writable(volatile char *p, size_t limit) {
    fault = 0;
    if (sigsetjmp(back, 1) == 0) {
        for (size_t i = 0; i < limit; i += 16)
            p[i] = 1;
        return limit;
    }
    CHECK(fault >= (uintptr_t)p);
    return fault - (uintptr_t)p;
}

/* An overrun that goes on ends at the page behind the block. */
static void overrun(size_t bytes) {
    volatile char *p = malloc(bytes);
    CHECK(p != NULL);
    size_t reached = writable(p, 16 << 20);
    CHECK(reached >= bytes && reached < bytes + bytes / 4 + 3 * 4096);
    CHECK(((uintptr_t)p + reached) % 4096 == 0);
    /* The block is damaged. */
}

static void freed(size_t bytes) {
    volatile char *p = malloc(bytes);
    CHECK(p != NULL);
    memset((char *)p, 1, bytes);
    free((void *)p);
    CHECK(writable(p + bytes / 2, 16) == 0);
    CHECK(writable(p, 16) == 0);
    /* A child of a fork has the same. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        p[bytes / 2] = 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    /* What is reused can be written to, and is what was asked for. */
    char *again = calloc(1, bytes);
    CHECK(again != NULL);
    for (size_t i = 0; i < bytes; i++)
        CHECK(again[i] == 0);
    memset(again, 2, bytes);
    free(again);
}

/* Blocks that grow and shrink, in place and by moves, beside others, keep their bytes. */
static void resized(void) {
    enum { BLOCKS = 12 };
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    uint64_t random = 1;
    for (int step = 0; step < 4000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (random >> 33) % BLOCKS;
        size_t size = (random >> 40) % ((step % 16 == 0 ? 6000u : 600u) << 10) + 1;
        unsigned char *p = realloc(blocks[i], size);
        CHECK(p != NULL);
        size_t kept = size < sizes[i] ? size : sizes[i];
        for (size_t at = 0; at < kept; at += 997)
            CHECK(p[at] == (unsigned char)(i + at));
        for (size_t at = 0; at < size; at += 997)
            p[at] = (unsigned char)(i + at);
        p[size - 1] = (size - 1) % 997 == 0 ? (unsigned char)(i + size - 1) : 0;
        blocks[i] = p;
        sizes[i] = size;
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

/* Prints the most memory that a program with blocks of all sizes had, in KiB. */
static void work(void) {
    enum { BLOCKS = 4000 };
    static char *blocks[BLOCKS];
    uint64_t random = 1;
    for (int step = 0; step < 200000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (random >> 33) % BLOCKS;
        size_t size = (size_t)64 << (random >> 60 & 3);
        if (step % 64 == 0)
            size <<= 10;
        free(blocks[i]);
        blocks[i] = malloc(size);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, size);
    }
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            printf("%ld\n", strtol(line + 6, NULL, 10));
    fclose(status);
}

extern size_t malloc_object_size(const void *address);
extern void *malloc_object_base(const void *address);
#pragma weak malloc_object_size
#pragma weak malloc_object_base

/* Every address in a block leads to its start and its end. */
static void objects(void) {
    static char outside[64];
    static const size_t sizes[] = {1,     8,     40,     100,    1000,   4096,
                                   14000, 20000, 100000, 300000, 3 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    char *blocks[3][SIZES];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < SIZES; i++)
            CHECK((blocks[round][i] = malloc(sizes[i])) != NULL);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZES; i++) {
            char *p = blocks[round][i];
            size_t usable = malloc_usable_size(p);
            size_t offsets[] = {0, 1, usable / 3, usable / 2, usable - 1};
            for (size_t j = 0; j < sizeof offsets / sizeof *offsets; j++) {
                if (offsets[j] >= usable)
                    continue;
                CHECK(malloc_object_base(p + offsets[j]) == p);
                CHECK(malloc_object_size(p + offsets[j]) == usable - offsets[j]);
            }
        }
    }
    const void *others[] = {outside, others, NULL, (void *)objects, (void *)-1};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK(malloc_object_base(others[i]) == NULL);
        CHECK(malloc_object_size(others[i]) == SIZE_MAX);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZES; i++) {
            free(blocks[round][i]);
            /* Whatever is there now. */
            malloc_object_size(blocks[round][i]);
        }
    }
}

/* A free block has no bytes, as far as the library can tell. */
static void free_objects(void) {
    char *p = malloc(40);
    free(p);
    CHECK(malloc_object_base(p + 8) == p && malloc_object_size(p + 8) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (sysconf(_SC_PAGESIZE) != 4096 || is_emulated()) {
        printf("skipped\n");
        return 0;
    }
    struct sigaction action = {0};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    const char *name = arguments[1];
    if (strcmp(name, "overrun") == 0) {
        overrun(100 << 10);
        overrun(20 << 10);
        overrun(900 << 10);
    } else if (strcmp(name, "freed") == 0) {
        freed(256 << 10);
        freed(65 << 10);
        freed(5 << 20);
        freed((size_t)200 << 20);
    } else if (strcmp(name, "resized") == 0) {
        resized();
    } else if (strcmp(name, "objects") == 0) {
        objects();
    } else if (strcmp(name, "free_objects") == 0) {
        free_objects();
    } else if (strcmp(name, "work") == 0) {
        work();
    } else {
        CHECK(!"a known name");
    }
    return 0;
}
