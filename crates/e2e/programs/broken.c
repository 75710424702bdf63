/* An allocator with one fault, selected by MALLARD_E2E_FAULT, that a useful test must find.
 * Everything else is the C library's. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_uint calls;
static atomic_flag lock = ATOMIC_FLAG_INIT;

static int fault_is(const char *name) {
    const char *fault = getenv("MALLARD_E2E_FAULT");
    return fault != NULL && strcmp(fault, name) == 0;
}

/* True for one of `n` calls, so that a program gets started before it meets the fault. */
static int one_in(unsigned n) { return atomic_fetch_add(&calls, 1) % n == n - 1; }
static int now(void) { return one_in(500); }

void *malloc(size_t n) {
    if (fault_is("fork") &&
        one_in(50)) { /* a lock that stays taken in the child of a badly timed fork */
        while (atomic_flag_test_and_set(&lock))
            sched_yield();
        /* The other calls go on meanwhile, so that a thread forks while the lock is taken, on a
         * busy machine as on an idle one. */
        usleep(100);
        atomic_flag_clear(&lock);
    }
    if (fault_is("overlap")) {
        static _Atomic(void *) last;
        void *p = n == 100 || now() ? atomic_load(&last) : NULL;
        if (p != NULL && n >= 8 && n <= 64)
            return p;
        p = __libc_malloc(n);
        if (n >= 64 && n <= 128)
            atomic_store(&last, p);
        return p;
    }
    if (fault_is("errno") && now())
        errno = ENOMEM;
    return __libc_malloc(n);
}

void *calloc(size_t count, size_t size) {
    unsigned char *p = __libc_calloc(count, size);
    if (fault_is("calloc") && p != NULL && count * size > 100 && now())
        p[61] = 1;
    return p;
}

void *realloc(void *p, size_t n) {
    unsigned char *moved = __libc_realloc(p, n);
    if (fault_is("realloc") && moved != NULL && n > 100 && now())
        moved[61] ^= 1;
    return moved;
}

int posix_memalign(void **out, size_t alignment, size_t n) {
    if (fault_is("misaligned") && alignment > 64 && now())
        alignment = 16;
    *out = __libc_memalign(alignment, n);
    return *out == NULL ? ENOMEM : 0;
}

void free(void *p) { __libc_free(p); }
