/* Preloaded after the library under test. At the start of each process, writes one line to the file
 * named by MALLARD_E2E_WITNESS: the program's name and the files to which the allocation functions
 * are bound. A single write() in append mode keeps the lines of different processes intact. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const functions[] = {"malloc", "calloc",         "realloc",
                                        "free",   "posix_memalign", "mallocx"};

/* The file that has the definition at the address, or NULL if there is only a reference. Without
 * glibc's dladdr1, dladdr, which finds definitions only, and the address of one is what it says. */
static const char *definer(void *address) {
    Dl_info info;
#ifndef __GLIBC__
    return dladdr(address, &info) != 0 && info.dli_saddr == address ? info.dli_fname : NULL;
#else
    const ElfW(Sym) *symbol = NULL;
    if (address == NULL || dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0)
        return NULL;
    return symbol == NULL || symbol->st_shndx != SHN_UNDEF ? info.dli_fname : NULL;
#endif
}

/* If a program is not position independent and takes a function's address, dlsym finds an address
 * inside the program, which jumps to the real function. In that case this asks each object in the
 * loader's order, to find the target of the jump. */
static const char *provider(const char *function) {
    const char *file = definer(dlsym(RTLD_DEFAULT, function));
    struct link_map *program = dlopen(NULL, RTLD_LAZY);
    for (struct link_map *object = program; file == NULL && object != NULL;
         object = object->l_next) {
        if (object == program)
            continue;
        void *handle = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL)
            file = definer(dlsym(handle, function));
    }
    return file != NULL ? file : "nobody";
}

/* The name by which the program was started, or its file's name if it started itself as
 * /proc/self/exe. */
static const char *program_name(char *space, size_t size) {
    if (strcmp(program_invocation_short_name, "exe") != 0)
        return program_invocation_short_name;
    ssize_t length = readlink("/proc/self/exe", space, size - 1);
    if (length <= 0)
        return program_invocation_short_name;
    space[length] = '\0';
    char *slash = strrchr(space, '/');
    return slash != NULL ? slash + 1 : space;
}

__attribute__((constructor)) static void testify(void) {
    const char *path = getenv("MALLARD_E2E_WITNESS");
    if (path == NULL)
        return;
    char line[4096], name[4096];
    size_t length = (size_t)snprintf(line, sizeof line, "%s", program_name(name, sizeof name));
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        length +=
            (size_t)snprintf(line + length, sizeof line - length, "\t%s", provider(functions[i]));
        if (length >= sizeof line - 1)
            return;
    }
    line[length++] = '\n';
    int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return;
    if (write(descriptor, line, length) != (ssize_t)length)
        abort();
    close(descriptor);
}
