// Stacks of many kinds. Each function calls `probe` at its deepest point.

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <unistd.h>

using probe_fn = void (*)();

namespace {

struct Guarded {
    std::string text;
    probe_fn probe;
    ~Guarded() { probe(); }
};

__attribute__((noinline)) int dive(int depth, probe_fn probe) {
    Guarded guarded{std::string(static_cast<size_t>(depth) + 20, 'x'), probe};
    if (depth == 0) {
        probe();
        throw std::runtime_error(guarded.text);
    }
    try {
        return dive(depth - 1, probe) + 1;
    } catch (const std::logic_error &) {
        return 0;
    }
}

// The compiler keeps the address of the arguments in another register, and says so by expressions.
__attribute__((noinline, force_align_arg_pointer)) int aligned(int size, probe_fn probe) {
    alignas(64) char here[128];
    char *there = static_cast<char *>(__builtin_alloca(static_cast<size_t>(size)));
    memset(there, 1, static_cast<size_t>(size));
    memset(here, 2, sizeof here);
    asm volatile("" : : "r"(here), "r"(there) : "memory");
    probe();
    return here[5] + there[5];
}

probe_fn to_call;

int compare(const void *a, const void *b) {
    to_call();
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

__attribute__((noinline, noreturn)) void leave(probe_fn probe) {
    probe();
    throw 1;
}

// The call of `leave` is the last instruction: its return address is in the next function.
__attribute__((noinline, noreturn)) void tail(probe_fn probe) { leave(probe); }

} // namespace

extern "C" int throwing(probe_fn probe) {
    try {
        return dive(40, probe);
    } catch (const std::runtime_error &) {
        probe();
        return 1;
    }
}

extern "C" int realigned(probe_fn probe) { return aligned(100, probe) + 1; }

extern "C" int sorting(probe_fn probe) {
    to_call = probe;
    int numbers[] = {5, 3, 4, 1};
    qsort(numbers, 4, sizeof numbers[0], compare);
    return numbers[0];
}

extern "C" int without_return(probe_fn probe) {
    try {
        tail(probe);
    } catch (int value) {
        return value;
    }
}

__attribute__((noinline)) static int recurse(int depth, probe_fn probe) {
    if (depth == 0) {
        probe();
        return 0;
    }
    int below = recurse(depth - 1, probe);
    asm volatile("" : "+r"(below));
    return below + 1;
}

extern "C" int thousand(probe_fn probe) { return recurse(1000, probe); }

// What is run one instruction at a time: the linkage table, the loader that binds a function, the
// vDSO, the C library, an exception, functions that align their stack.
extern "C" int stepped(probe_fn probe) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char text[32];
    strncpy(text, "hello", sizeof text);
    int sum = static_cast<int>(strtol("17", nullptr, 10)) + static_cast<int>(strlen(text));
    sum += sorting(probe) + realigned(probe) + without_return(probe);
    sum += static_cast<int>(getppid() != 0);
    char *copy = strdup(text);
    free(copy);
    return sum;
}
