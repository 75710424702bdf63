// Writes a heap profile of one stack, as the process would look to a sampler in it: the return
// address of record(), and the map of the process. With an argument it then waits for its input's
// end.
#include <cstdio>
#include <cstdlib>

static void *caller;

__attribute__((noinline)) void record() {
    caller = __builtin_return_address(0);
    __asm__ volatile("" ::: "memory");
}

namespace shop {
struct Shelf {
    template <class Thing> static inline __attribute__((always_inline)) void put(Thing) {
        record(); // line 16
        __asm__ volatile("" ::: "memory");
    }
};

__attribute__((noinline)) void fill(int things) {
    Shelf::put(things); // line 22
    __asm__ volatile("" ::: "memory");
}
} // namespace shop

int main(int arguments, char **) {
    shop::fill(3);
    std::printf(
        "heap_v2/1\n  t*: 1: 100 [1: 100]\n@ %p\n  t*: 1: 100 [1: 100]\n\nMAPPED_LIBRARIES:\n",
        caller);
    FILE *maps = std::fopen("/proc/self/maps", "r");
    for (int c; (c = std::fgetc(maps)) != EOF;)
        std::putchar(c);
    std::puts("");
    std::fflush(stdout);
    while (arguments > 1 && std::getchar() != EOF) {}
    return 0;
}
