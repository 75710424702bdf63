/* Interposes between the library and the system, where the library returns memory and where it
 * waits: `advised NAME`. With -DNO_KEYS the C library cannot notify the library when threads end.
 *
 *   cleared  reuses memory that was returned, on a system whose MADV_DONTNEED does nothing, and
 *            reports whether calloc's is zero
 *   calls    returns many pieces and counts the calls that took
 *   waits    makes threads contend for locks until one sleeps or a long time has passed; reports
 *            how many slept
 *   nothing
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "check.h"
#include "malloc_more.h"

static int does_nothing;
static unsigned single, together, waits;

#ifdef NO_KEYS
int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    (void)key, (void)destructor;
    return EAGAIN;
}
#endif

static long raw(long number, long a, long b, long c, long d, long e) {
#if defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#else
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#endif
}

int madvise(void *at, size_t length, int advice) {
    if (advice == MADV_DONTNEED) {
        single++;
        if (does_nothing)
            return 0;
    }
    return raw(SYS_madvise, (long)at, (long)length, advice, 0, 0) == 0 ? 0 : -1;
}

long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_process_madvise)
        together++;
    if (number == SYS_futex && (b & FUTEX_CMD_MASK) == FUTEX_WAIT)
        __atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED);
    long result = raw(number, a, b, c, d, e);
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* Whether this kernel accepts several ranges of the calling process in one call. */
static int kernel_can(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    struct iovec part = {at, page};
    return raw(SYS_process_madvise, -10000, (long)&part, 1, MADV_DONTNEED, 0) == (long)page;
}

static void *meet(void *turns) {
    for (int i = 0; i < *(int *)turns && __atomic_load_n(&waits, __ATOMIC_RELAXED) == 0; i++) {
        void *volatile p = malloc(64);
        CHECK(p != NULL);
        free(p);
    }
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (strcmp(arguments[1], "cleared") == 0) {
        enum { SIZE = 3000000 };
        does_nothing = 1;
        for (int round = 0; round < 3; round++) {
            char *p = malloc(SIZE);
            CHECK(p != NULL);
            memset(p, 7, SIZE);
            free(p);
            malloc_trim(0);
            CHECK(single > 0);
            p = calloc(1, SIZE);
            CHECK(p != NULL);
            size_t wrong = 0;
            for (size_t i = 0; i < SIZE; i++)
                wrong += p[i] != 0;
            free(p);
            if (wrong > 0) {
                printf("old contents\n");
                return 0;
            }
        }
        printf("zero\n");
    } else if (strcmp(arguments[1], "calls") == 0) {
        enum { COUNT = 2000 };
        static void *blocks[COUNT];
        for (int i = 0; i < COUNT; i++)
            CHECK((blocks[i] = malloc(60000)) != NULL);
        for (int i = 0; i < COUNT; i++)
            memset(blocks[i], 1, 60000);
        for (int i = 0; i < COUNT; i += 2)
            free(blocks[i]);
        single = together = 0;
        malloc_trim(0);
        printf("%u %u %s\n", single, together, kernel_can() ? "can" : "cannot");
    } else if (strcmp(arguments[1], "waits") == 0) {
        enum { THREADS = 4, TURNS = 1000000 };
        int turns = TURNS;
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, meet, &turns) == 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        printf("%u\n", waits);
    } else if (strcmp(arguments[1], "nothing") == 0) {
        free(malloc(100));
    } else {
        return 2;
    }
    return 0;
}
