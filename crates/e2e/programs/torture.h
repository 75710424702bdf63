// What the torture programs share: workers on blocks of every interface, and timers of threads.
#ifndef MALLARD_E2E_TORTURE_H
#define MALLARD_E2E_TORTURE_H

#include <atomic>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "blocks.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

extern "C" int mallctl(const char *, void *, std::size_t *, void *, std::size_t)
    __attribute__((weak));

namespace {

std::size_t some_size(Random &random) {
    const std::uint64_t kind = random.below(1000);
    return random.below(kind < 800 ? 512 : kind < 980 ? 20000 : kind < 998 ? 300000 : 3000000);
}

/// Blocks that any thread may take. Each is complete before it is there.
constexpr std::size_t SHARED = 256;
std::atomic<Block *> shared[SHARED];

/// A thread's blocks, and what it does with them.
struct Worker {
    Random random;
    std::vector<Block> held;

    explicit Worker(std::uint64_t seed) : random(seed) { held.reserve(200); }

    void work(unsigned steps) {
        for (unsigned i = 0; i < steps; i++) {
            if (held.size() < 100 && !random.one_in(3)) {
                held.push_back(take(random, some_size(random)));
                continue;
            }
            if (held.empty())
                continue;
            const std::size_t at = random.below(held.size());
            if (random.one_in(4)) {
                resize(held[at], some_size(random));
            } else {
                give_back(random, held[at]);
                held[at] = held.back();
                held.pop_back();
            }
        }
    }

    void share() {
        for (int i = 0; i < 8; i++)
            drop(shared[random.below(SHARED)].exchange(new Block(take(random, some_size(random)))));
    }

    /// Takes and frees what is shared.
    void take_shared() {
        for (auto &place : shared)
            drop(place.exchange(nullptr));
    }

    void end() {
        for (Block &block : held)
            give_back(random, block);
        held.clear();
    }

    /// Calls that look at all caches and heaps.
    void ask() {
        malloc_trim(0);
        if (mallctl == nullptr)
            return;
        std::uint64_t epoch = 1;
        CHECK(mallctl("epoch", nullptr, nullptr, &epoch, sizeof epoch) == 0);
        CHECK(mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0) == 0);
    }

  private:
    void drop(Block *block) {
        if (block == nullptr)
            return;
        give_back(random, *block);
        delete block;
    }
};

/// Makes manual arenas, which serve a part of the blocks from then on.
inline void make_arenas() {
    while (arena_count < sizeof arenas / sizeof *arenas && mallctl != nullptr) {
        std::size_t length = sizeof *arenas;
        CHECK(mallctl("arenas.create", &arenas[arena_count], &length, nullptr, 0) == 0);
        arena_count++;
    }
}

/// As they are passed to a thread.
inline void *seed_of(std::uint64_t seed) { return reinterpret_cast<void *>(seed | 1); }

/// The work of a thread that soon ends.
inline void *short_thread(void *seed) {
    Worker worker(reinterpret_cast<std::uintptr_t>(seed));
    worker.work(60);
    worker.end();
    return nullptr;
}

inline void start_and_join(Random &random, int n) {
    pthread_t threads[4];
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], nullptr, short_thread, seed_of(random.next())) == 0);
    for (int i = 0; i < n; i++)
        CHECK(pthread_join(threads[i], nullptr) == 0);
}

inline void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | flags;
    CHECK(sigaction(number, &action, nullptr) == 0);
}

/// Sends a signal to the thread that makes it and to no other, as long as it is there.
class Timer {
  public:
    Timer(int number, long period_ns) {
        struct sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = number;
        event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
        CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        const struct itimerspec every = {{0, period_ns}, {0, period_ns}};
        CHECK(timer_settime(timer, 0, &every, nullptr) == 0);
    }
    ~Timer() { CHECK(timer_delete(timer) == 0); }
    Timer(const Timer &) = delete;
    Timer &operator=(const Timer &) = delete;

  private:
    timer_t timer;
};

} // namespace

#endif
