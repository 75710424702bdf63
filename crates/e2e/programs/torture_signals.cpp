// Signal torture: `torture_signals SECONDS STACK`. Eight threads use every interface (`blocks.h`),
// and a timer of each interrupts it a thousand times a second. The handlers run on alternate stacks
// with STACK bytes beside the kernel's own part, above a closed page. Where a thread only computes,
// so that the handler interrupts no function, it allocates and sometimes leaves by `siglongjmp`.
//
// Beside them, threads are cancelled: some at any point where a thread may be, some while they
// compute, and some have a cancellation pending through all calls of the allocator, none of which
// may be the one that ends them. Ends with one line of counts.
#include <cerrno>
#include <csetjmp>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "torture.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

extern "C" void malloc_stats_print(void (*)(void *, const char *), void *, const char *)
    __attribute__((weak));

namespace {

enum { THREADS = 8, LIMIT_S = 240, PERIOD_NS = 1000000, ERRNO = 4711 };

std::atomic<long> signals{0}, in_handlers{0}, jumps{0}, cancelled{0}, pending{0};
std::atomic<bool> over{false};
std::size_t stack_bytes;

struct Stack {
    char *low;
    std::size_t size;
};
thread_local Stack own_stack;
thread_local sigjmp_buf place;
/// Whether the thread computes.
thread_local volatile sig_atomic_t may_allocate = 0;
thread_local Random *of_handler;
/// What handlers have made, and the next ones free.
thread_local Block made[4];

void on_signal(int) {
    const int before = errno;
    const char here = 0;
    CHECK(&here >= own_stack.low && &here < own_stack.low + own_stack.size);
    signals++;
    if (may_allocate) {
        Block &block = made[of_handler->below(4)];
        if (block.bytes != nullptr)
            give_back(*of_handler, block);
        block = take(*of_handler, some_size(*of_handler));
        in_handlers++;
        if (of_handler->one_in(4)) {
            may_allocate = 0;
            jumps++;
            errno = before;
            siglongjmp(place, 1);
        }
    }
    errno = before;
}

/// Looks at blocks, and calls nothing. Has nothing to clean up, because a jump or a cancellation
/// may end it anywhere.
__attribute__((noinline)) void compute(const std::vector<Block> &blocks) {
    for (int round = 0; round < 8; round++)
        for (const Block &block : blocks)
            verify(block);
}

__attribute__((noinline)) void compute_beside_handlers(const std::vector<Block> &blocks) {
    if (sigsetjmp(place, 1) == 0) {
        may_allocate = 1;
        compute(blocks);
    }
    may_allocate = 0;
}

void use_own_stack() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t least = getauxval(AT_MINSIGSTKSZ);
    const std::size_t wanted = (least > 2048 ? least : 2048) + stack_bytes;
    const std::size_t size = (wanted + page - 1) & ~(page - 1);
    void *at = mmap(nullptr, page + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    char *low = static_cast<char *>(at) + page;
    CHECK(mprotect(low, size, PROT_READ | PROT_WRITE) == 0);
    // The rest of the lowest page is not the handlers'.
    own_stack = {low + (size - wanted) / 16 * 16, wanted / 16 * 16};
    stack_t stack = {};
    stack.ss_sp = own_stack.low;
    stack.ss_size = own_stack.size;
    CHECK(sigaltstack(&stack, nullptr) == 0);
    memset(low, 0xA5, static_cast<std::size_t>(own_stack.low - low));
}

/// The bytes below the stack are as they were.
void give_up_own_stack() {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&none, nullptr) == 0);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    char *low = reinterpret_cast<char *>(reinterpret_cast<std::uintptr_t>(own_stack.low) & -page);
    for (const char *byte = low; byte < own_stack.low; byte++)
        CHECK(*byte == '\xA5');
    CHECK(munmap(low - page,
                 static_cast<std::size_t>(own_stack.low - low) + own_stack.size + page) == 0);
}

void *interrupted(void *seed) {
    Worker worker(reinterpret_cast<std::uintptr_t>(seed));
    Random random(worker.random.next());
    of_handler = &random;
    use_own_stack();
    {
        Timer timer(SIGUSR1, PERIOD_NS);
        while (!over) {
            errno = ERRNO;
            worker.work(200);
            worker.share();
            CHECK(errno == ERRNO);
            compute_beside_handlers(worker.held);
            if (worker.random.one_in(16))
                start_and_join(worker.random, 2);
            if (worker.random.one_in(64))
                worker.ask();
        }
    }
    for (Block &block : made)
        if (block.bytes != nullptr)
            give_back(random, block);
    worker.end();
    give_up_own_stack();
    return nullptr;
}

void end_worker(void *worker) {
    static_cast<Worker *>(worker)->end();
    delete static_cast<Worker *>(worker);
}

void ignore(void *, const char *) {}

/// All calls with a cancellation pending: one that were a cancellation point would end the thread
/// with the allocator's locks, or before the end of this.
void call_all(Worker &worker) {
    worker.work(300);
    worker.share();
    worker.ask();
    CHECK(malloc_usable_size(nullptr) == 0);
#ifdef __GLIBC__
    CHECK(mallinfo2().arena + mallinfo2().hblkhd > 0);
#endif
    if (malloc_stats_print != nullptr)
        malloc_stats_print(ignore, nullptr, worker.random.one_in(2) ? "J" : nullptr);
    if (mallctl != nullptr) {
        CHECK(mallctl("arena.0.purge", nullptr, nullptr, nullptr, 0) == 0);
        bool is_on = worker.random.one_in(2);
        const int refused = mallctl("background_thread", nullptr, nullptr, &is_on, sizeof is_on);
        CHECK(refused == 0 || refused == EAGAIN || refused == EBUSY);
    }
}

void *has_a_cancellation_pending(void *seed) {
    auto *worker = new Worker(reinterpret_cast<std::uintptr_t>(seed));
    pthread_cleanup_push(end_worker, worker);
    CHECK(pthread_cancel(pthread_self()) == 0);
    call_all(*worker);
    pending++;
    pthread_testcancel();
    CHECK(!"the thread goes on");
    pthread_cleanup_pop(0);
    return nullptr;
}

void *is_cancelled(void *seed) {
    auto *worker = new Worker(reinterpret_cast<std::uintptr_t>(seed));
    pthread_cleanup_push(end_worker, worker);
    for (;;) {
        worker->work(20);
        int before;
        CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before) == 0);
        compute(worker->held);
        CHECK(pthread_setcanceltype(before, nullptr) == 0);
        if (worker->random.one_in(4))
            pthread_testcancel();
        if (worker->random.one_in(8))
            usleep(10);
    }
    pthread_cleanup_pop(0);
    return nullptr;
}

void cancel_some(Random &random) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        void *(*run)(void *) = i < 2 ? is_cancelled : has_a_cancellation_pending;
        CHECK(pthread_create(&threads[i], nullptr, run, seed_of(random.next())) == 0);
    }
    usleep(static_cast<useconds_t>(random.below(5000)));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_cancel(threads[i]) == 0);
    for (pthread_t thread : threads) {
        void *result;
        CHECK(pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        cancelled++;
    }
}

long now_s() {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 3);
    const long seconds = atol(arguments[1]);
    stack_bytes = strtoul(arguments[2], nullptr, 10);
    alarm(static_cast<unsigned>(LIMIT_S + seconds));
    make_arenas();
    handle(SIGUSR1, on_signal, SA_ONSTACK);
    const long end = now_s() + seconds;
    pthread_t threads[THREADS];
    for (std::uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], nullptr, interrupted, seed_of(i * 2)) == 0);
    Random random(1);
    while (now_s() < end || jumps == 0 || pending == 0)
        cancel_some(random);
    over = true;
    for (pthread_t thread : threads)
        CHECK(pthread_join(thread, nullptr) == 0);
    Worker(1).take_shared();
    printf("signals=%ld in_handlers=%ld jumps=%ld cancelled=%ld pending=%ld\n", signals.load(),
           in_handlers.load(), jumps.load(), cancelled.load(), pending.load());
    return 0;
}
