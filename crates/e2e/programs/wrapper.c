/* An interposer like those that tools use. It puts a header before each block, so no block may
 * bypass it. At the end it reports whether the process uses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct header {
    void *start;
    size_t size;
    uint64_t mark[2];
};
#define MARK 0x5752415050455221u

static void *(*next_malloc)(size_t);
static void *(*next_memalign)(size_t, size_t);
static void (*next_free)(void *);
static _Atomic long calls;

/* Memory for the requests of dlsym during initialisation. */
static _Alignas(64) char early[65536];
static _Atomic size_t used;

static void start(void) {
    static _Thread_local int busy;
    if (next_free != NULL || busy)
        return;
    busy = 1;
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_memalign = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    busy = 0;
}

static void *make(size_t align, size_t size) {
    start();
    if (align < sizeof(struct header))
        align = sizeof(struct header);
    if (size > SIZE_MAX / 2)
        return errno = ENOMEM, NULL;
    size_t whole = size + align;
    char *p;
    if (next_free == NULL) {
        size_t at = atomic_fetch_add(&used, (whole + 63) / 64 * 64);
        if (at + whole > sizeof early)
            abort();
        p = early + at;
    } else {
        p = align == sizeof(struct header) ? next_malloc(whole) : next_memalign(align, whole);
    }
    if (p == NULL)
        return NULL;
    struct header *header = (struct header *)(p + align) - 1;
    *header = (struct header){p, size, {MARK, MARK}};
    atomic_fetch_add(&calls, 1);
    return p + align;
}

static struct header *header_of(void *block) {
    struct header *header = (struct header *)block - 1;
    if (header->mark[0] != MARK || header->mark[1] != MARK) {
        static const char text[] = "wrapper: a block that did not come through here\n";
        if (write(2, text, sizeof text - 1) > 0)
            abort();
    }
    return header;
}

void *malloc(size_t size) { return make(0, size); }

void free(void *block) {
    if (block == NULL)
        return;
    struct header *header = header_of(block);
    header->mark[0] = 0;
    atomic_fetch_add(&calls, 1);
    char *start = header->start;
    if (start < early || start >= early + sizeof early)
        next_free(start);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return errno = ENOMEM, NULL;
    void *block = make(0, bytes);
    return block == NULL ? NULL : memset(block, 0, bytes);
}

void *realloc(void *block, size_t size) {
    void *other = make(0, size);
    if (block == NULL || other == NULL)
        return other;
    size_t old = header_of(block)->size;
    memcpy(other, block, old < size ? old : size);
    free(block);
    return other;
}

void *reallocarray(void *block, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return errno = ENOMEM, NULL;
    return realloc(block, bytes);
}

void *memalign(size_t align, size_t size) { return make(align, size); }
void *aligned_alloc(size_t align, size_t size) { return make(align, size); }
void *valloc(size_t size) { return make(4096, size); }
void *pvalloc(size_t size) { return make(4096, (size + 4095) / 4096 * 4096); }
int posix_memalign(void **out, size_t align, size_t size) {
    return (*out = make(align, size)) ? 0 : ENOMEM;
}
size_t malloc_usable_size(void *block) { return block == NULL ? 0 : header_of(block)->size; }

__attribute__((destructor)) static void end(void) {
    char text[64];
    int n = snprintf(text, sizeof text, "wrapper: %s\n", calls > 1000 ? "in use" : "not in use");
    if (write(2, text, (size_t)n) < 0)
        abort();
}
