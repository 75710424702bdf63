/* A process's view of its address space and the limits on it, one part per name. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do                                                                                             \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s, errno %d\n", __FILE__, __LINE__, #condition, errno);                \
            exit(1);                                                                               \
        }                                                                                          \
    while (0)

/* A line of /proc/self/status, in KiB, read without calling malloc. */
static size_t status(const char *name) {
    static char text[8192];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    setvbuf(file, NULL, _IONBF, 0);
    size_t kib = 0;
    while (fgets(text, sizeof text, file) != NULL)
        if (strncmp(text, name, strlen(name)) == 0)
            kib = strtoul(text + strlen(name) + 1, NULL, 10);
    fclose(file);
    return kib;
}

static void *keep(void *p) {
    __asm__ volatile("" ::"r"(p) : "memory");
    return p;
}

static void *allocate(void *argument) {
    free(keep(malloc(100)));
    return argument;
}

/* Allocates `count` blocks of `size` bytes with distinct contents, linked into a list. */
static void **fill(size_t size, size_t count) {
    void **last = NULL;
    for (size_t i = 0; i < count; i++) {
        void **p = malloc(size);
        CHECK(p != NULL);
        memset(p, (int)i, size);
        p[0] = last, p[1] = (void *)i, last = p;
    }
    return last;
}

/* Checks that the contents are unchanged, and frees the blocks. */
static void drop(void **last, size_t size) {
    while (last != NULL) {
        void **next = last[0];
        const unsigned char byte = (unsigned char)(size_t)last[1], *bytes = (unsigned char *)last;
        for (size_t at = 16; at < size; at += 509)
            CHECK(bytes[at] == byte);
        CHECK(bytes[size - 1] == byte);
        free(last);
        last = next;
    }
}

/* A process limits its own address space while it runs. Everything that it does afterwards works
 * within this limit. */
static void limit_set_later(void) {
    free(keep(malloc(10)));
    const struct rlimit limit = {1ul << 30, 1ul << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    FILE *child = popen("true", "r");
    CHECK(child != NULL && pclose(child) == 0);
    size_t blocks = 0;
    while (blocks < 2048 && keep(malloc(1 << 20)) != NULL)
        blocks++;
    printf("%s\n", blocks > 850 && blocks < 1024 ? "nearly all of it" : "not the limit");
}

/* How much memory malloc provides if all memory is locked, with a limit of 8 MiB. */
static void locked_by_limit(size_t size) {
    const struct rlimit limit = {8 << 20, 8 << 20};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (getuid() == 0)
        CHECK(setuid(65534) == 0);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    size_t bytes = 0;
    for (char *p; bytes < 64 << 20 && (p = malloc(size)) != NULL; bytes += size)
        memset(p, 1, size);
    static char text[32];
    const int length = snprintf(text, sizeof text, "%zu\n", bytes >> 10);
    CHECK(write(1, text, (size_t)length) == length);
    _exit(0);
}

/* The memory that 300 MiB of blocks lock, in MiB. */
static void locked(void) {
    const size_t before = status("VmRSS");
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    const int is_enough = getuid() == 0 || limit.rlim_cur > 400 << 20;
    if (!is_enough || mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        printf("cannot\n");
        return;
    }
    fill(64 << 10, 300 << 4);
    printf("%zu\n", (status("VmLck") - before) >> 10);
}

/* The end of the mapping that contains the block, including adjacent mappings. */
static uintptr_t end_of_mapping(void *block) {
    char line[512];
    uintptr_t end = 0, from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        CHECK(sscanf(line, "%lx-%lx", &from, &to) == 2);
        if (from <= (uintptr_t)block || (end != 0 && from == end))
            if (to > (uintptr_t)block)
                end = to;
    }
    fclose(maps);
    return end;
}

/* Foreign pages appear right after the heap, again and again as it grows. The heap continues
 * elsewhere, and the pages do not change. */
static void in_the_way(size_t times) {
    enum { SIZE = 50000, COUNT = 150, MOST = 64 };
    void **lists[MOST + 1];
    unsigned char *others[MOST];
    CHECK(times <= MOST);
    for (size_t i = 0; i < times; i++) {
        lists[i] = fill(SIZE, COUNT);
        const uintptr_t end = end_of_mapping(lists[i]);
        others[i] = mmap((void *)end, 1 << 16, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (others[i] == MAP_FAILED)
            others[i] = NULL;
        if (others[i] != NULL)
            memset(others[i], 0xa0 + (int)i, 1 << 16);
    }
    lists[times] = fill(3 << 20, 40);
    drop(lists[times], 3 << 20);
    size_t placed = 0;
    for (size_t i = 0; i < times; i++) {
        drop(lists[i], SIZE);
        for (size_t at = 0; others[i] != NULL && at < 1 << 16; at++)
            CHECK(others[i][at] == (unsigned char)(0xa0 + i));
        placed += others[i] != NULL;
    }
    CHECK(placed > times / 2);
    printf("goes on\n");
}

/* The heap in threads and in a child of fork, in an address space layout that the caller of the
 * program chose. */
static void in_any_layout(void) {
    void **list = fill(3000, 20000), **large = fill(5 << 20, 10);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        drop(list, 3000), drop(large, 5 << 20);
        drop(fill(70000, 500), 70000);
        _exit(7);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 7);
    /* The program wants the first 4 GiB for itself. */
    for (int i = 0; i < 100; i++)
        CHECK(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
                   -1, 0) != MAP_FAILED);
    drop(list, 3000), drop(large, 5 << 20);
    printf("works\n");
}

int main(int count, char **arguments) {
    CHECK(count > 1);
    const char *name = arguments[1];
    const size_t number = count > 2 ? strtoul(arguments[2], NULL, 10) : 0;
    if (strcmp(name, "virtual_size") == 0) {
        free(keep(malloc(100)));
        printf("%zu\n", status("VmSize"));
    } else if (strcmp(name, "heap_of") == 0) {
        /* The size is in MiB. */
        const size_t before = status("VmSize");
        fill(64 << 10, number * 16);
        printf("%zu\n", (status("VmSize") - before) >> 10);
    } else if (strcmp(name, "limit_set_later") == 0) {
        limit_set_later();
    } else if (strcmp(name, "locked_by_limit") == 0) {
        locked_by_limit(number);
    } else if (strcmp(name, "locked") == 0) {
        locked();
    } else if (strcmp(name, "in_the_way") == 0) {
        in_the_way(number);
    } else if (strcmp(name, "in_any_layout") == 0) {
        in_any_layout();
    } else {
        return 2;
    }
    return 0;
}
