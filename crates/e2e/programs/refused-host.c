/* Loads plug-ins made of refused.cpp, each with RTLD_LOCAL, so that no other object sees their C++
 * runtime: `refused-host SIZE PLUGIN...` prints "refused ok". Compiled as C++, it also catches what
 * they throw. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "expendable.h"
#include "refused.h"

#ifdef __cplusplus
#include <new>

static bool catches(void (*throws)(size_t), size_t size) {
    try {
        throws(size);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}
#endif

typedef void (*Refused)(size_t);

int main(int count, char **arguments) {
    enum { PLUGINS = 8 };
    void *plugins[PLUGINS];
    CHECK(count > 2 && count - 2 <= PLUGINS);
    be_expendable(10);
    const size_t size = strtoul(arguments[1], NULL, 10);
    for (int i = 0; i < count - 2; i++) {
        plugins[i] = dlopen(arguments[i + 2], RTLD_NOW | RTLD_LOCAL);
        if (plugins[i] == NULL)
            dprintf(STDERR_FILENO, "%s\n", dlerror());
        CHECK(plugins[i] != NULL);
    }
    for (int i = 0; i < count - 2; i++) {
        const Refused inside = (Refused)dlsym(plugins[i], "refused_inside");
        CHECK(inside != NULL);
        inside(size);
#ifdef __cplusplus
        CHECK(catches((Refused)dlsym(plugins[i], "refused_throws"), size));
#endif
    }
    puts("refused ok");
    return 0;
}
