// Misuses a guarded block of C++, as the argument says.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <memory>

extern "C" int mallctl(const char *, void *, size_t *, void *, size_t);

struct Widget {
    char name[40];
    __attribute__((noinline)) void rename(int at) { static_cast<volatile char *>(name)[at] = 'x'; }
};

__attribute__((noinline)) static Widget *make_widget() { return new Widget; }
__attribute__((noinline)) static void drop_widget(Widget *widget) { delete widget; }

int main(int, char **argv) {
    bool on = true;
    if (mallctl("experimental.guard.active", nullptr, nullptr, &on, sizeof on) != 0)
        return 4;
    Widget *widget = make_widget();
    for (int i = 0; malloc_usable_size(widget) != sizeof(Widget) ||
                    reinterpret_cast<size_t>(widget) % 4096 == 0;
         i++) {
        drop_widget(widget);
        if (i == 1000000)
            return 3;
        widget = make_widget();
    }
    if (!strcmp(argv[1], "overflow"))
        widget->rename(48);
    drop_widget(widget);
    if (!strcmp(argv[1], "write"))
        widget->rename(8);
    if (!strcmp(argv[1], "read"))
        return static_cast<volatile char *>(widget->name)[8];
    drop_widget(widget);
    puts("went on");
}
