/*
 * Runs under an allocator and reports which object serves its memory.
 *
 * The lab starts this program with the library preloaded. The program prints lines `key=value`:
 *   malloc, calloc, …     the object from which the loader took that function
 *   new, delete           the same for the C++ operators, where there is a libstdc++
 *   glibc_bytes, served   by how much glibc's own count of live bytes grew while `served` bytes
 *                         were taken: a front that passes requests on to glibc is found by this
 *   library, libc         versions, as the library and the C library tell them
 *   per_cpu               whether tcmalloc's per-CPU caches are active
 *   exercise=ok           several threads have allocated, checked and freed
 * Exit code 0 means that the program found out all of this, not that the answers are right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <gnu/libc-version.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 200, LIVE = 64, BLOCKS = 2048, BLOCK = 1000 };

static void tell_object(const char *key, void *handle, const char *symbol) {
    void *address = dlsym(handle, symbol);
    Dl_info info;
    if (address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL)
        printf("%s=%s\n", key, info.dli_fname);
}

/* The bytes that glibc's own allocator has handed out; -1 if unknown. */
static long long glibc_bytes(void) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (libc == NULL)
        return -1;
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 (*ask)(void) = (struct mallinfo2(*)(void))dlsym(libc, "mallinfo2");
#else
    struct mallinfo (*ask)(void) = (struct mallinfo(*)(void))dlsym(libc, "mallinfo");
#endif
    return ask == NULL ? -1 : (long long)(ask().uordblks + ask().hblkhd);
}

static void tell_versions(void) {
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
        (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
    int (*mi_version)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "mi_version");
    const char *(*tc_version)(int *, int *, const char **) =
        (const char *(*)(int *, int *, const char **))dlsym(RTLD_DEFAULT, "tc_version");
    const char *(*peer_version)(void) =
        (const char *(*)(void))dlsym(RTLD_DEFAULT, "mallard_peer_version");
    const char *text = NULL;
    size_t length = sizeof text;
    if (peer_version != NULL) {
        printf("library=%s\n", peer_version());
    } else if (mallctl != NULL && mallctl("version", &text, &length, NULL, 0) == 0 &&
               text != NULL) {
        printf("library=%s\n", text);
    } else if (mi_version != NULL) {
        /* Up to 2.2, minor and patch have one digit each, later two. */
        int version = mi_version();
        if (version < 10000)
            printf("library=%d.%d.%d\n", version / 100, version / 10 % 10, version % 10);
        else
            printf("library=%d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    } else if (tc_version != NULL) {
        int major, minor;
        printf("library=%s\n", tc_version(&major, &minor, &text));
    }
    printf("libc=%s\n", gnu_get_libc_version());

    int (*per_cpu)(void) =
        (int (*)(void))dlsym(RTLD_DEFAULT, "MallocExtension_Internal_GetPerCpuCachesActive");
    if (per_cpu != NULL)
        printf("per_cpu=%d\n", (per_cpu() & 0xff) != 0);
}

/* Whether all bytes are `with`: the first one is, and each is like the one before it. */
static int filled(const unsigned char *block, size_t size, unsigned char with) {
    return size == 0 || (block[0] == with && memcmp(block, block + 1, size - 1) == 0);
}

/* Allocates with every function and checks the results. Returns a phrase for what went
 * wrong. */
static void *exercise(void *argument) {
    uint64_t random = 88172645463325252u + (uintptr_t)argument;
    unsigned char *live[LIVE] = {0};
    size_t sizes[LIVE] = {0};
    for (int round = 0; round < ROUNDS * LIVE; round++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int slot = round % LIVE;
        unsigned char mark = (unsigned char)slot;
        if (live[slot] != NULL && !filled(live[slot], sizes[slot], mark))
            return "a live block was overwritten";
        size_t size = 1 + random % 5000, alignment = (size_t)16 << (random >> 32) % 8;
        void *block = NULL;
        switch ((random >> 40) % 4) {
        case 0:
            free(live[slot]);
            block = malloc(size);
            break;
        case 1:
            free(live[slot]);
            block = calloc(1, size);
            if (block != NULL && !filled(block, size, 0))
                return "calloc gave memory that is not zero";
            break;
        case 2:
            free(live[slot]);
            if (posix_memalign(&block, alignment, size) != 0 || (uintptr_t)block % alignment != 0)
                return "posix_memalign failed";
            break;
        default: {
            size_t kept = sizes[slot] < size ? sizes[slot] : size;
            block = realloc(live[slot], size);
            if (block != NULL && !filled(block, kept, mark))
                return "realloc lost bytes";
        }
        }
        if (block == NULL)
            return "a request for a few bytes failed";
        if (malloc_usable_size(block) < size)
            return "malloc_usable_size is below the requested size";
        memset(block, mark, size);
        live[slot] = block, sizes[slot] = size;
    }
    for (int slot = 0; slot < LIVE; slot++)
        free(live[slot]);
    return NULL;
}

/* With an argument it ends without what options ask for at the end: profiles, statistics. */
int main(int count, char **words) {
    (void)words;
    static const char *const family[] = {
        "malloc",         "calloc",        "realloc",  "free",
        "posix_memalign", "aligned_alloc", "memalign", "malloc_usable_size",
    };
    for (size_t i = 0; i < sizeof family / sizeof *family; i++)
        tell_object(family[i], RTLD_DEFAULT, family[i]);
    if (dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL) != NULL) {
        tell_object("new", RTLD_DEFAULT, "_Znwm");
        tell_object("delete", RTLD_DEFAULT, "_ZdlPv");
    }

    static void *volatile blocks[BLOCKS];
    long long before = glibc_bytes();
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(BLOCK);
    long long after = glibc_bytes();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    if (before >= 0)
        printf("glibc_bytes=%lld\nserved=%d\n", after - before, BLOCKS * BLOCK);

    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, exercise, (void *)(i * 977)) != 0)
            return 1;
    const char *wrong = NULL;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        if (result != NULL)
            wrong = result;
    }
    printf("exercise=%s\n", wrong == NULL ? "ok" : wrong);
    tell_versions();
    if (count > 1) {
        fflush(stdout);
        _exit(0);
    }
    return 0;
}
