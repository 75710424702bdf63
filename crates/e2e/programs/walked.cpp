// Allocates below frames of many kinds. Each function that keeps a block has a frame of its own.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <ucontext.h>

#define FRAME extern "C" __attribute__((noinline))
// What follows a call keeps it from being the last instruction of its function.
#define AFTER asm volatile("" ::: "memory")

static void *volatile kept;

FRAME void keep() {
    kept = malloc(100);
    AFTER;
}

FRAME int deep(int depth) {
    if (depth == 0)
        keep();
    int below = depth == 0 ? 0 : deep(depth - 1);
    asm volatile("" : "+r"(below));
    return below + 1;
}

// The frame pointer is one more register that the function saves.
FRAME __attribute__((optimize("omit-frame-pointer"))) int frameless(int depth, int *out) {
    int here = depth;
    asm volatile("" : "+r"(here));
    if (depth == 0)
        keep();
    else
        here += frameless(depth - 1, out);
    *out = here;
    AFTER;
    return here;
}

extern "C" int compare(const void *a, const void *b) {
    keep();
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

FRAME void sorting() {
    int numbers[] = {5, 3, 4, 1};
    qsort(numbers, 4, sizeof numbers[0], compare);
    AFTER;
}

struct Guard {
    ~Guard() { keep(); }
};

FRAME void thrower(int depth) {
    Guard guard;
    if (depth == 0)
        throw std::runtime_error("thrown");
    thrower(depth - 1);
    AFTER;
}

FRAME void catching() {
    try {
        thrower(3);
    } catch (const std::exception &) {
        keep();
        AFTER;
    }
}

FRAME void growing(size_t size) {
    char *there = static_cast<char *>(__builtin_alloca(size));
    memset(there, 1, size);
    asm volatile("" ::"r"(there) : "memory");
    keep();
    asm volatile("" ::"r"(there) : "memory");
}

FRAME void large() {
    char there[300000];
    memset(there, 1, sizeof there);
    asm volatile("" ::"r"(there) : "memory");
    keep();
    asm volatile("" ::"r"(there) : "memory");
}

FRAME void aligned() {
    alignas(256) char there[256];
    memset(there, 1, sizeof there);
    asm volatile("" ::"r"(there) : "memory");
    keep();
    asm volatile("" ::"r"(there) : "memory");
}

extern "C" void on_signal(int) {
    keep();
    AFTER;
}

FRAME void signalled() {
    raise(SIGUSR1);
    AFTER;
}

static sigjmp_buf back;

extern "C" void on_fault(int) {
    keep();
    siglongjmp(back, 1);
}

// It saves nothing and calls nothing: where it is interrupted, the return address may be in a
// register.
FRAME void leaf(volatile int *at) { *at = 1; }

FRAME void faulted() {
    if (sigsetjmp(back, 1) == 0)
        leaf(reinterpret_cast<int *>(8));
    AFTER;
}

// Code that no table describes. It keeps a frame pointer, which leads to the bottom of its frame on
// AArch64.
FRAME void made(void (*then)()) {
#if defined(__aarch64__)
    // stp x29, x30, [sp, #-48]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #48; ret
    static const unsigned code[] = {0xa9bd7bfd, 0x910003fd, 0xd63f0000, 0xa8c37bfd, 0xd65f03c0};
#elif defined(__x86_64__)
    // push %rbp; mov %rsp, %rbp; sub $32, %rsp; call *%rdi; leave; ret
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83,
                                         0xec, 0x20, 0xff, 0xd7, 0xc9, 0xc3};
#endif
    char *at = static_cast<char *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memcpy(at, code, sizeof code);
    mprotect(at, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(at, at + sizeof code);
    void (*function)(void (*)());
    memcpy(&function, &at, sizeof at);
    function(then);
    AFTER;
}

static void *in_thread(void *) {
    deep(5);
    return nullptr;
}

// Whether the return address on the stack is not the address that the function returns to.
FRAME bool is_signed() {
    void **record = static_cast<void **>(__builtin_frame_address(0));
    return record[1] != __builtin_extract_return_addr(__builtin_return_address(0));
}

int main() {
    signal(SIGUSR1, on_signal);
    signal(SIGSEGV, on_fault);
    int out;
    deep(40);
    frameless(4, &out);
    sorting();
    catching();
    growing(1000);
    large();
    aligned();
    signalled();
    faulted();
    made(keep);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, in_thread, nullptr) == 0)
        pthread_join(thread, nullptr);
    puts(is_signed() ? "signed" : "plain");
}
