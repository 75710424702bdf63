/* Memory functions of the full suite's workloads: mapped memory outside the measured heap, blocks
 * that verify themselves, and the process's memory at the end.
 *
 * A block's first word holds its own address, scrambled. `check` verifies and erases it, so a block
 * that was handed out twice, overwritten by a neighbour or freed twice ends the program. No table
 * is needed, and any thread that holds the block can check it. `stamp` also writes a byte in each
 * further page: real programs use their memory, and a resident size without the inside of large
 * blocks would flatter every allocator.
 *
 * The figures printed here, in addition to those of workload.h:
 *
 *     end_rss_bytes 1234567     resident memory in the row's end state, without lazy_free_bytes
 *     huge_bytes 2097152        AnonHugePages of /proc/self/smaps_rollup, the largest value seen */
#ifndef MALLARD_MEMORY_H
#define MALLARD_MEMORY_H

#include "workload.h"

#include <fcntl.h>
#include <unistd.h>

/* ---- memory beside the heap ------------------------------------------------------------------ */

static inline void *map_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap", strerror(errno));
    return memory;
}

static inline void unmap_memory(void *memory, size_t bytes) {
    if (munmap(memory, bytes))
        fail("munmap", strerror(errno));
}

/* ---- blocks that verify themselves ----------------------------------------------------------- */

enum { LEAST_BLOCK = sizeof(uint64_t), PAGE_BYTES = 4096 };

static inline uint64_t stamp_of(const void *block) {
    return (uint64_t)(uintptr_t)block ^ UINT64_C(0x9E3779B97F4A7C15);
}

static inline void stamp(void *block, size_t size) {
    *(volatile uint64_t *)block = stamp_of(block);
    for (size_t at = PAGE_BYTES; at < size; at += PAGE_BYTES)
        ((volatile char *)block)[at] = 'a';
}

static inline void check(void *block) {
    volatile uint64_t *word = (volatile uint64_t *)block;
    if (__builtin_expect(*word != stamp_of(block), 0))
        fail("a block has lost its content", "the allocator handed it out twice, or wrote to it");
    *word = 0;
}

static inline void *make(size_t size) {
    void *block = must(malloc(size));
    stamp(block, size);
    return block;
}

static inline void drop(void *block) {
    check(block);
    free(block);
}

/* Checks `min` and `max`: sizes have room for the stamp, and are in order. */
static inline void check_range(uint64_t low, uint64_t high) {
    if (low > high)
        fail("min is larger than max", "give min=N max=M with N <= M");
}

/* ---- the process's memory -------------------------------------------------------------------- */

/* Reads a file of /proc without stdio, whose buffers would come from the measured heap. */
static inline size_t read_proc(const char *path, char *text, size_t room) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    size_t length = 0;
    ssize_t got;
    while (length + 1 < room && (got = read(file, text + length, room - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = '\0';
    return length;
}

/* The kibibytes after `name` in a text of /proc, in bytes; 0 if there are none. */
static inline uint64_t bytes_in(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static inline uint64_t proc_bytes(const char *path, const char *name) {
    char text[4096];
    return read_proc(path, text, sizeof text) ? bytes_in(text, name) : 0;
}

static inline uint64_t rss_bytes(void) {
    char text[256], *end;
    if (!read_proc("/proc/self/statm", text, sizeof text))
        fail("cannot read /proc/self/statm", strerror(errno));
    strtoull(text, &end, 10); /* the size of the address space */
    return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t huge_seen;

/* Called at the program's peak. It walks the page tables (about 1 ms for 400 MiB of small pages),
 * so programs call it only once and outside the clock if possible. */
static inline void note_huge(void) {
    const uint64_t huge = proc_bytes("/proc/self/smaps_rollup", "AnonHugePages:");
    uint64_t seen = __atomic_load_n(&huge_seen, __ATOMIC_RELAXED);
    while (huge > seen && !__atomic_compare_exchange_n(&huge_seen, &seen, huge, 0, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED)) {}
}

static uint64_t end_rss, lazy_free;

/* Records the row's end state. Later memory no longer counts. Pages that the kernel may take at
 * will (MADV_FREE) are no cost: they count apart. */
static inline void note_end(void) {
    const uint64_t rss = rss_bytes();
    lazy_free = proc_bytes("/proc/self/smaps_rollup", "LazyFree:");
    end_rss = rss > lazy_free ? rss - lazy_free : 0;
    note_huge();
}

static inline void print_memory(void) {
    if (!end_rss)
        note_end();
    printf("end_rss_bytes %llu\n", (unsigned long long)end_rss);
    printf("lazy_free_bytes %llu\n", (unsigned long long)lazy_free);
    printf("huge_bytes %llu\n", (unsigned long long)huge_seen);
}

/* Prints all of a row's figures. Reads the end state before it prints the first line. */
static inline void print_all(double seconds, uint64_t operations) {
    if (!end_rss)
        note_end();
    print_memory();
    print_result(seconds, operations);
}

/* The rest of a workload: `threads` threads that begin together, each with so many operations. */
static inline int run_all(uint64_t threads, void (*work)(uint64_t), uint64_t operations_each) {
    const double seconds = run_threads(threads, 1, work);
    print_all(seconds, threads * operations_each);
    return 0;
}

#endif
