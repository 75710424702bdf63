/* How much of the caller's stack the allocator's functions use. Each line of output is a name and
 * the depth of the lowest byte below the call that changed, found by painting the stack beforehand.
 * Only the first call in a process initialises the allocator, so the order matters. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "malloc_more.h"

enum { PAINTED = 48 << 10, PAINT = 0xa7, BLOCKS = 600, STACK = 256 << 10 };

typedef int control(const char *, void *, size_t *, void *, size_t);
typedef void report(void (*)(void *, const char *), void *, const char *);
static control *mallctl_of;
static report *print_of;
static void *blocks[BLOCKS];
static unsigned state = 1;

/* Paints the stack below its caller's frame, or finds the lowest painted byte that changed. */
__attribute__((noinline)) static uintptr_t below(int painting) {
    volatile unsigned char here;
    const uintptr_t top = (uintptr_t)&here - 256;
    if (painting) {
        for (uintptr_t at = top; at > top - PAINTED; at--)
            *(volatile unsigned char *)at = PAINT;
        return top;
    }
    uintptr_t at = top - PAINTED + 1;
    while (at < top && *(volatile unsigned char *)at == PAINT)
        at++;
    return at;
}

__attribute__((noinline)) static size_t depth_of(void (*f)(void)) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    below(1);
    f();
    return (size_t)(here - below(0));
}

static void show(const char *name, void (*f)(void)) {
    const size_t depth = depth_of(f);
    dprintf(STDOUT_FILENO, "%s %zu\n", name, depth);
}

static unsigned next(void) {
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

static void first_call(void) { free(malloc(100)); }

/* Random allocations, resizes and frees, some aligned, up to 2 MiB but rarely that long. */
static void mixed(void) {
    for (int i = 0; i < 30000; i++) {
        void **at = &blocks[next() % BLOCKS];
        const size_t size = (size_t)(next() % 1000 + 1) << (next() % 12 * (next() % 8 == 0));
        switch (next() % 8) {
        case 0:
            free(*at), *at = calloc(1, size);
            break;
        case 1:
            free(*at), *at = memalign((size_t)1 << (next() % 17), size);
            break;
        case 2:
            *at = realloc(*at, size);
            break;
        case 3:
            free(*at), *at = NULL;
            break;
        case 4:
            free(*at), *at = aligned_alloc(64, size);
            break;
        default:
            free(*at), *at = malloc(size);
        }
        CHECK(*at == NULL || malloc_usable_size(*at) > 0);
        if (*at)
            *(char *)*at = 1;
    }
}

/* Cache refills, and slabs that come and go. */
static void many(void) {
    static void *all[40000];
    for (size_t size = 16; size <= 65536; size *= 4) {
        const size_t count = size <= 1024 ? 40000 : 40000 * 256 / size;
        for (size_t i = 0; i < count; i++)
            all[i] = malloc(size);
        for (size_t i = 0; i < count; i += 2)
            free(all[i]);
        for (size_t i = 1; i < count; i += 2)
            free(all[i]);
    }
}

static void growing(void) {
    char *p = NULL;
    for (size_t size = 1000; size < 40 << 20; size += size / 2) {
        p = realloc(p, size);
        CHECK(p != NULL);
        memset(p + size / 2, 1, size / 2);
    }
    free(realloc(p, 100));
}

static void empty(void) {
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]), blocks[i] = NULL;
}

static void trim(void) { malloc_trim(0); }

static void told(const char *name) {
    if (mallctl_of)
        mallctl_of(name, NULL, NULL, NULL, 0);
}

static void flush(void) { told("thread.tcache.flush"); }
static void purge(void) { told("arena.4096.purge"); }
static void decay(void) { told("arena.4096.decay"); }

static void refresh(void) {
    uint64_t epoch = 1;
    if (mallctl_of)
        mallctl_of("epoch", NULL, NULL, &epoch, sizeof epoch);
}

static void look_up(void) {
    size_t value, length = sizeof value;
    if (mallctl_of)
        mallctl_of("stats.allocated", &value, &length, NULL, 0);
}

static void look_up_deep(void) {
    uint64_t value;
    size_t length = sizeof value;
    if (mallctl_of)
        mallctl_of("stats.arenas.0.mutexes.base.num_ops", &value, &length, NULL, 0);
}

static void make_arena(void) {
    unsigned arena;
    size_t length = sizeof arena;
    if (mallctl_of)
        mallctl_of("arenas.create", &arena, &length, NULL, 0);
}

#ifdef __GLIBC__
static void figures(void) { (void)mallinfo2(); }
#endif

static void forked(void) {
    const pid_t child = fork();
    if (child == 0)
        free(malloc(5000)), _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
}

static void nothing(void *unused, const char *text) { (void)unused, (void)text; }
static void printed(void) {
    if (print_of)
        print_of(nothing, NULL, NULL);
}

static uintptr_t frame;

static void *idle_thread(void *unused) {
    frame = (uintptr_t)__builtin_frame_address(0);
    return unused;
}

static void *short_thread(void *unused) {
    frame = (uintptr_t)__builtin_frame_address(0);
    free(malloc(100));
    return unused;
}

static void *busy_thread(void *unused) {
    frame = (uintptr_t)__builtin_frame_address(0);
    mixed(), many(), empty();
    return unused;
}

/* A whole thread, including its end and destructors. */
static void show_thread(const char *name, void *(*body)(void *)) {
    unsigned char *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    memset(stack, PAINT, STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 &&
          pthread_attr_setstack(&attributes, stack, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, body, NULL) == 0 && pthread_join(thread, NULL) == 0);
    size_t lowest = 0;
    while (stack[lowest] == PAINT)
        lowest++;
    dprintf(STDOUT_FILENO, "%s %zu\n", name, (size_t)(frame - (uintptr_t)(stack + lowest)));
    CHECK(munmap(stack, STACK) == 0);
}

int main(void) {
    show("first-call", first_call);
    mallctl_of = (control *)dlsym(RTLD_DEFAULT, "mallctl");
    print_of = (report *)dlsym(RTLD_DEFAULT, "malloc_stats_print");
    show("mixed", mixed);
    show("many", many);
    show("growing", growing);
    show("purge", purge);
    show("mixed-again", mixed);
    show_thread("thread-idle", idle_thread);
    show_thread("thread-short", short_thread);
    show_thread("thread-busy", busy_thread);
    show("empty", empty);
    show("decay", decay);
    show("flush", flush);
    show("refresh", refresh);
    show("look-up", look_up);
    show("look-up-deep", look_up_deep);
#ifdef __GLIBC__
    show("mallinfo2", figures);
#endif
    show("fork", forked);
    show("mixed-after-fork", mixed);
    show("trim", trim);
    show("arena", make_arena);
    show("print", printed);
    return 0;
}
