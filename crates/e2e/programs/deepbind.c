/* Blocks that pass between a program and a plug-in loaded with RTLD_DEEPBIND.
 *
 *   deepbind cross MODULE now|lazy    every way to get a block, in both directions
 *   deepbind library MODULE           the C library's handle returns what the process uses
 *   deepbind threads MODULE...        several threads load the first plug-ins at once
 *   deepbind refused MODULE           the system does not permit changing the C library's symbols
 *   deepbind meaning MODULE CALLER    dlopen and dlmopen mean what they mean without the flag
 *
 * Built with -DCXX and linked with libstdc++, it also passes objects of `new`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "deepbind-ways.h"

static const char *line_file = "deepbind-line";

static void fail(const char *what) {
    const char *error = dlerror();
    fprintf(stderr, "%s: %s\n", what, error ? error : "no error");
    exit(1);
}

static const struct module *look(void *handle) {
    if (handle == NULL)
        fail("load");
    const struct module *module = dlsym(handle, "module");
    if (module == NULL)
        fail("look up");
    return module;
}

static void cross(const struct module *module) {
    for (enum way way = 0; way < WAYS; way++) {
        char *block = module->make(way, line_file);
        size_t size = malloc_usable_size(block);
        if (size < sizeof LINE || size != module->usable(block))
            fail("usable size");
        take(grow(block, 300));
        block = make(way, line_file);
        take(module->grow(block, 200000));
        block = module->grow(make(way, line_file), 40000);
        module->take(grow(block, sizeof LINE));
        module->take(make(way, line_file));
        take(module->make(way, line_file));
    }
#ifdef CXX
    void *(*make_new)(size_t) = dlsym(RTLD_DEFAULT, "_Znwm");
    void (*take_new)(void *) = dlsym(RTLD_DEFAULT, "_ZdlPv");
    if (make_new == NULL || take_new == NULL)
        fail("operators");
    for (int i = 0; i < 10; i++) {
        module->take_buffer(memset(make_new(100), 1, 100));
        take_new(memset(module->make_buffer(100), 1, 100));
    }
#endif
    if (module->own() != 0)
        fail("the module's own work");
}

static void show_c_library(void) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (libc == NULL)
        fail("the C library");
    const char *names[] = {
        "malloc",         "calloc",        "realloc",     "free",       "memalign",
        "posix_memalign", "aligned_alloc", "valloc",      "pvalloc",    "malloc_usable_size",
        "reallocarray",   "mallinfo2",     "malloc_trim", "malloc_info"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s %s\n", names[i],
               dlsym(libc, names[i]) == dlsym(RTLD_DEFAULT, names[i]) ? "same" : "other");
    void *(*raw)(size_t) = dlsym(libc, "malloc");
    free(raw(100));
    Dl_info info;
    printf("getpid in %s\n",
           dladdr(dlsym(libc, "getpid"), &info) ? strrchr(info.dli_fname, '/') : "nothing");
}

static pthread_barrier_t barrier;

static void *cross_in_thread(void *file) {
    pthread_barrier_wait(&barrier);
    const struct module *module = look(dlopen(file, RTLD_NOW | RTLD_DEEPBIND));
    for (int i = 0; i < 20; i++)
        cross(module);
    return NULL;
}

/* No mapping that contains the C library's symbol tables can become writable any more. */
static void forbid(void) {
    Dl_info info;
    if (!dladdr(dlsym(RTLD_DEFAULT, "getpid"), &info))
        fail("where is the C library");
    uint64_t base = (uintptr_t)info.dli_fbase;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, base >> 32, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, (uint32_t)base),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x100000, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("seccomp");
        exit(77);
    }
    void *page = (void *)(base & -4096);
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != -1 || errno != EPERM)
        fail("the filter lets it pass");
}

static void say(const char *what, void *handle) {
    const char *error = dlerror();
    printf("%s: %s, %s\n", what, handle ? "there" : "none", error ? error : "no error");
}

static void meaning(const char *file, const char *caller_file) {
    const int flags[] = {RTLD_NOW, RTLD_LAZY, RTLD_NOW | RTLD_DEEPBIND,
                         RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND};
    void *caller = dlopen(caller_file, RTLD_NOW);
    if (caller == NULL)
        fail("caller");
    void *(*dlopen_there)(const char *, int) = dlsym(caller, "dlopen_there");
    void *(*dlmopen_there)(const char *, int) = dlsym(caller, "dlmopen_there");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        printf("flags %#x\n", flags[i]);
        say("not loaded", dlopen(file, flags[i] | RTLD_NOLOAD));
        say("beside the caller, from here", dlopen("only-there.so", flags[i]));
        void *there = dlopen_there("only-there.so", flags[i]);
        say("beside the caller", there);
        say("again", dlmopen_there("only-there.so", flags[i]));
        if (there == NULL || dlmopen_there("only-there.so", flags[i]) != there)
            fail("another handle");
        for (int times = 0; times < 3; times++)
            dlclose(there);
        say("not loaded any more", dlopen_there("only-there.so", flags[i] | RTLD_NOLOAD));
        say("no such file", dlopen("/nowhere/at-all.so", flags[i]));
        say("the same", dlmopen(LM_ID_BASE, "/nowhere/at-all.so", flags[i]));
        say("no library", dlopen("./deepbind-line", flags[i]));
        void *self = dlopen(NULL, flags[i]);
        say("the program", self);
        printf("main is %s\n", dlsym(self, "main") ? "there" : "hidden");
        say("no such symbol", dlsym(self, "there is no such symbol"));
        say("no such mode", dlopen(file, flags[i] & ~(RTLD_NOW | RTLD_LAZY)));
        void *handle = dlopen(file, flags[i]);
        say("a module", handle);
        if (dlopen(file, flags[i] | RTLD_NOLOAD) != handle)
            fail("another handle");
        printf("its work: %d\n", look(handle)->own());
        dlclose(handle);
        printf("closed: %d\n", dlclose(handle));
    }
    /* Another namespace has its own C library. */
    void *apart = dlmopen(LM_ID_NEWLM, file, RTLD_NOW | RTLD_DEEPBIND);
    say("apart", apart);
    const struct module *module = look(apart);
    module->take(module->grow(module->make(GETLINE, line_file), 1000));
    printf("its work: %d\n", module->own());
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    FILE *line = fopen(line_file, "w");
    if (line == NULL || fputs(LINE "\n", line) < 0 || fclose(line) != 0)
        fail("write");
    if (strcmp(what, "cross") == 0) {
        int flags =
            RTLD_DEEPBIND | (strcmp(argv[3], "now") == 0 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL);
        void *handle = dlopen(argv[2], flags);
        for (int i = 0; i < 100; i++)
            cross(look(handle));
    } else if (strcmp(what, "library") == 0) {
        look(dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND));
        show_c_library();
    } else if (strcmp(what, "threads") == 0) {
        pthread_t threads[8];
        pthread_barrier_init(&barrier, NULL, 8);
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, cross_in_thread, argv[2 + i % (argc - 2)]);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(what, "refused") == 0) {
        forbid();
        const struct module *module = look(dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND));
        look(dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND));
        printf("its work: %d\n", module->own());
    } else if (strcmp(what, "meaning") == 0) {
        meaning(argv[2], argv[3]);
    } else {
        return 2;
    }
    puts("done");
    return 0;
}
