/* Stands between the library and the kernel where it gives memory back: `advised NAME`.
 *
 *   cleared  takes memory that went back, on a system whose MADV_DONTNEED does nothing, and tells
 *            whether calloc's is zero
 *   calls    gives many pieces back and counts the calls that took
 */
#include <malloc.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "check.h"

static int does_nothing;
static unsigned single, together;

static long raw(long number, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

int madvise(void *at, size_t length, int advice) {
    if (advice == MADV_DONTNEED) {
        single++;
        if (does_nothing) return 0;
    }
    return raw(SYS_madvise, (long)at, (long)length, advice, 0, 0) == 0 ? 0 : -1;
}

long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_process_madvise) together++;
    long result = raw(number, a, b, c, d, e);
    return result < 0 && result > -4096 ? -1 : result;
}

/* Whether this kernel takes several ranges of the caller's in one call. */
static int kernel_can(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    struct iovec part = {at, page};
    return raw(SYS_process_madvise, -10000, (long)&part, 1, MADV_DONTNEED, 0) == (long)page;
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
            for (size_t i = 0; i < SIZE; i++) wrong += p[i] != 0;
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
        for (int i = 0; i < COUNT; i++) CHECK((blocks[i] = malloc(60000)) != NULL);
        for (int i = 0; i < COUNT; i++) memset(blocks[i], 1, 60000);
        for (int i = 0; i < COUNT; i += 2) free(blocks[i]);
        single = together = 0;
        malloc_trim(0);
        printf("%u %u %s\n", single, together, kernel_can() ? "can" : "cannot");
    } else {
        return 2;
    }
    return 0;
}
