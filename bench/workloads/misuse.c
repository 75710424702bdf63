/* misuse: the cases of `mallard bench misuse` that are written in C. Each is one mistake with a
 * heap, as small as it can be, on blocks of 8 bytes, 4 KiB and 256 KiB. misuse.h has the protocol.
 *
 * The set `counted` has 37 kinds, which are those of mimalloc-bench's security tests, so that
 * figures can be compared; two that test nothing there are replaced. */
#include <pthread.h>
#include <sys/mman.h>

#include "misuse.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
/* Pairs of malloc and free after the mistake: time for a check that comes late. */
#define LATER 32768
/* The size for which a case that has none takes its second or third form. */
#define MIDDLE ((size_t)4096)

static void *(*volatile change)(void *, size_t) = realloc;
static void *(*volatile zeroed)(size_t, size_t) = calloc;

static void pairs(size_t size, int count) {
    for (int i = 0; i < count; i++)
        give(take(size));
}

/* Keeps an address from the compiler. */
static char *hidden(void *address) {
    void *volatile keep = address;
    return (char *)keep;
}

/* ---- double free ----------------------------------------------------------------------------- */

static void double_free(size_t size) {
    char *p = block(size);
    give(p);
    give(p);
}

static void double_free_between(size_t size) {
    char *p = block(size), *q = block(size);
    give(p);
    give(q);
    give(p);
}

static void double_free_delayed(size_t size) {
    char *p = block(size);
    give(p);
    pairs(size, 1024);
    give(p);
}

static void double_free_later(size_t size) {
    char *p = block(size);
    give(p);
    give(p);
    pairs(size, LATER);
}

static void double_free_owner(size_t size) {
    char *p = block(size);
    give(p);
    char *q = block(size);
    give(p);
    give(q);
}

static void realloc_freed(size_t size) {
    char *p = block(size);
    give(p);
    change(p, 2 * size);
}

static void *giver(void *p) {
    give(p);
    return NULL;
}

static void double_free_thread(size_t size) {
    char *p = block(size);
    pthread_t thread;
    if (pthread_create(&thread, NULL, giver, p))
        wrong("cannot start a thread");
    pthread_join(thread, NULL);
    give(p);
}

static void double_free_flushed(size_t size) {
    static char *others[4096];
    size_t count = size < MIB / 16 ? 4096 : 64;
    char *p = block(size);
    for (size_t i = 0; i < count; i++)
        others[i] = block(size);
    give(p);
    for (size_t i = 0; i < count; i++)
        give(others[i]);
    give(p);
}

static void double_free_moved(size_t size) {
    char *p = block(size);
    char *guard = block(size);
    char *q = (char *)change(p, 16 * size);
    if (q == p)
        prevented();
    give(p);
    give(guard);
}

/* ---- free of what is no block ---------------------------------------------------------------- */

static void free_inside(size_t size, size_t offset) { give(block(size) + offset); }

static void free_inside_1(size_t size) { free_inside(size, 1); }
static void free_inside_4(size_t size) { free_inside(size, 4); }
static void free_inside_8(size_t size) { free_inside(size, 8); }
static void free_inside_16(size_t size) { free_inside(size, 16); }
static void free_middle(size_t size) { free_inside(size, size / 2); }
static void free_close(size_t size) { free_inside(size, PAGE); }
static void free_far(size_t size) { free_inside(size, 1024 * MIB); }

static void free_static(size_t size) {
    static char memory[MIB];
    (void)size;
    give(hidden(memory + size));
}

static void free_stack(size_t size) {
    char memory[size];
    fill(memory, 's', size);
    give(hidden(memory));
}

static void free_mapping(size_t size) {
    char *p = (char *)mmap(NULL, size + 2 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        wrong("no mapping");
    give(p + PAGE);
}

/* ---- blocks of 0 bytes ----------------------------------------------------------------------- */

/* Each size has its own way to such a block. */
static volatile char *nothing(size_t size) {
    void *p = size < MIDDLE ? take(0) : size == MIDDLE ? zeroed(size, 0) : change(NULL, 0);
    if (!p)
        prevented();
    return (volatile char *)p;
}

static void zero_read(size_t size) { (void)nothing(size)[0]; }

static void zero_write(size_t size) { nothing(size)[0] = 'z'; }

static void zero_read_free(size_t size) {
    volatile char *p = nothing(size);
    (void)p[0];
    give((void *)p);
}

static void zero_write_free(size_t size) {
    volatile char *p = nothing(size);
    p[0] = 'z';
    give((void *)p);
}

static void zero_double_free(size_t size) {
    volatile char *p = nothing(size);
    give((void *)p);
    give((void *)p);
}

/* ---- over and under the end ------------------------------------------------------------------ */

static char bytes[MIB];

/* Changes each byte whatever it is, from the block's near edge outwards. */
static void over(size_t size, size_t count) {
    volatile char *p = block(size);
    for (size_t i = 0; i < count; i++)
        p[size + i] ^= 'o';
    give((void *)p);
}

static void under(size_t size, size_t count) {
    volatile char *p = block(size);
    for (size_t i = 1; i <= count; i++)
        *(p - i) ^= 'u';
    give((void *)p);
}

static void copy_over(size_t size, size_t count) {
    char *p = block(size);
    fill(bytes, 'o', count);
    copy(p + size, bytes, count);
    give(p);
}

static void copy_under(size_t size, size_t count) {
    char *p = block(size);
    fill(bytes, 'u', count);
    copy(p - count, bytes, count);
    give(p);
}

static void over_1(size_t size) { over(size, 1); }
static void over_8(size_t size) { over(size, 8); }
static void over_32(size_t size) { over(size, 32); }
static void over_page(size_t size) { over(size, PAGE); }
static void over_mib(size_t size) { over(size, MIB); }
static void copy_over_1(size_t size) { copy_over(size, 1); }
static void copy_over_32(size_t size) { copy_over(size, 32); }
static void copy_over_mib(size_t size) { copy_over(size, MIB); }
static void under_1(size_t size) { under(size, 1); }
static void under_32(size_t size) { under(size, 32); }
static void under_mib(size_t size) { under(size, MIB); }
static void copy_under_1(size_t size) { copy_under(size, 1); }
static void copy_under_32(size_t size) { copy_under(size, 32); }
static void copy_under_mib(size_t size) { copy_under(size, MIB); }

static void read_over(size_t size) {
    volatile char *p = block(size);
    for (size_t i = 0; i < MIB; i++)
        (void)p[size + i];
    give((void *)p);
}

/* ---- after free ------------------------------------------------------------------------------ */

static void write_freed(size_t size) {
    char *p = block(size);
    give(p);
    fill(p, 'w', size);
}

static void write_freed_later(size_t size) {
    write_freed(size);
    pairs(size, LATER);
}

static void write_moved(size_t size) {
    char *p = block(size);
    char *guard = block(size);
    char *q = (char *)change(p, 16 * size);
    if (q == p)
        prevented();
    fill(p, 'w', size);
    give(q);
    give(guard);
}

/* Whether most of a block is as `block` left it: an address there may have the same byte. */
static int has_contents(volatile char *p, size_t size) {
    size_t same = 0;
    for (size_t i = 0; i < size; i++)
        same += p[i] == 'b';
    return same > size / 2;
}

static void contents_freed(size_t size) {
    volatile char *p = block(size);
    give((void *)p);
    if (!has_contents(p, size))
        prevented();
}

static void contents_new(size_t size) {
    give(block(size));
    for (int round = 0; round < 16; round++) {
        if (has_contents((volatile char *)take(size), size))
            return;
    }
    prevented();
}

static void reuse(size_t size) {
    void *p = block(size);
    give(p);
    if (take(size) != p)
        prevented();
}

static void reuse_smaller(size_t size) {
    void *p = block(size);
    give(p);
    if (take(size / 2) != p)
        prevented();
}

/* ---- others ---------------------------------------------------------------------------------- */

static void too_large(size_t size) {
    void *p = size < MIDDLE    ? take(SIZE_MAX - 1)
              : size == MIDDLE ? zeroed(SIZE_MAX / size, 2 * size)
                               : change(block(size), (size_t)PTRDIFF_MAX + 1);
    if (!p)
        prevented();
}

static void executed(size_t size) {
#if defined(__x86_64__)
    static const unsigned char code[] = {0xc3};
#elif defined(__aarch64__)
    static const unsigned char code[] = {0xc0, 0x03, 0x5f, 0xd6};
#else
#error "the instruction that returns"
#endif
    union {
        char *data;
        void (*function)(void);
    } p = {block(size)};
    copy(p.data, code, sizeof code);
    __builtin___clear_cache(p.data, p.data + sizeof code);
    p.function();
}

#define ALL_SIZES "8,4096,262144"
#define COUNTED(kind, name, what)                                                                  \
    { "counted", kind, #name, ALL_SIZES, what, name }
#define FURTHER(kind, name, what)                                                                  \
    { "further", kind, #name, ALL_SIZES, what, name }

static const Case cases[] = {
    COUNTED("double free", double_free, "free twice at once"),
    COUNTED("double free", double_free_between, "free of another block between the two"),
    COUNTED("double free", double_free_delayed, "1,024 pairs of malloc and free between the two"),
    COUNTED("double free", double_free_later, "free twice at once, then 32,768 pairs"),
    COUNTED("double free", double_free_owner, "the second free is of a block that has a new owner"),
    COUNTED("double free", realloc_freed, "realloc of a freed block"),
    COUNTED("free of no block", free_inside_1, "1 byte into a block"),
    COUNTED("free of no block", free_inside_8, "8 bytes into a block"),
    COUNTED("free of no block", free_close, "4 KiB behind a block's start"),
    COUNTED("free of no block", free_far, "1 GiB behind a block's start"),
    COUNTED("free of no block", free_static, "an address in static memory"),
    COUNTED("free of no block", free_stack, "an array on the stack"),
    COUNTED("free of no block", free_mapping, "a mapping of the program's own"),
    COUNTED("block of 0 bytes", zero_read, "reads its first byte"),
    COUNTED("block of 0 bytes", zero_write, "writes its first byte"),
    COUNTED("block of 0 bytes", zero_read_free, "reads its first byte, then frees it"),
    COUNTED("block of 0 bytes", zero_write_free, "writes its first byte, then frees it"),
    COUNTED("overflow", over_1, "writes 1 byte behind a block, then frees it"),
    COUNTED("overflow", over_32, "writes 32 bytes behind a block, then frees it"),
    COUNTED("overflow", over_mib, "writes 1 MiB behind a block, then frees it"),
    COUNTED("overflow", copy_over_1, "memcpy of 1 byte behind a block, then frees it"),
    COUNTED("overflow", copy_over_32, "memcpy of 32 bytes behind a block, then frees it"),
    COUNTED("overflow", copy_over_mib, "memcpy of 1 MiB behind a block, then frees it"),
    COUNTED("underflow", under_1, "writes 1 byte in front of a block, then frees it"),
    COUNTED("underflow", under_32, "writes 32 bytes in front of a block, then frees it"),
    COUNTED("underflow", under_mib, "writes 1 MiB in front of a block, then frees it"),
    COUNTED("underflow", copy_under_1, "memcpy of 1 byte in front of a block, then frees it"),
    COUNTED("underflow", copy_under_32, "memcpy of 32 bytes in front of a block, then frees it"),
    COUNTED("underflow", copy_under_mib, "memcpy of 1 MiB in front of a block, then frees it"),
    COUNTED("write after free", write_freed, "fills a freed block"),
    COUNTED("write after free", write_freed_later, "fills a freed block, then 32,768 pairs"),
    COUNTED("old contents", contents_freed, "a freed block still has its contents"),
    COUNTED("old contents", contents_new, "a new block has the contents of a freed one"),
    COUNTED("reuse at once", reuse, "malloc returns the block that was just freed"),
    COUNTED("reuse at once", reuse_smaller, "the same for half the size"),
    COUNTED("others", executed, "runs code in a block"),
    COUNTED("others", too_large, "asks for more than there can be"),
    FURTHER("double free", double_free_thread, "another thread frees the block first"),
    FURTHER("double free", double_free_flushed, "many others are freed between the two"),
    FURTHER("double free", double_free_moved, "free of the old address after realloc moved"),
    FURTHER("free of no block", free_inside_4, "4 bytes into a block"),
    FURTHER("free of no block", free_inside_16, "16 bytes into a block, or behind it"),
    FURTHER("free of no block", free_middle, "the middle of a block"),
    FURTHER("block of 0 bytes", zero_double_free, "frees it twice"),
    FURTHER("overflow", over_8, "writes 8 bytes behind a block, then frees it"),
    FURTHER("overflow", over_page, "writes 4 KiB behind a block, then frees it"),
    FURTHER("overflow", read_over, "reads 1 MiB behind a block"),
    FURTHER("write after free", write_moved, "writes to the old address after realloc moved"),
};

int main(int argc, char **argv) { return run(argc, argv, cases, sizeof cases / sizeof *cases); }
