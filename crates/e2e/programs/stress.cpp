// The stress program: `stress SEED SECONDS WORKERS CHILD_SECONDS`. The last is the time limit for
// the child of a fork.
//
// Workers run some thousand operations and end, and new ones replace them. Each allocates, resizes,
// checks and frees blocks by every function and operator, exchanges blocks through a shared table,
// and sometimes forks, trims or reads statistics. The blocks that a worker still has at its end go
// to the table, or to the destructors of a pthread key and a C++ thread_local, which free them when
// the thread has almost ended. A timer interrupts all workers with signals.
//
// Every block has contents that are checked (`blocks.h`). A child of a fork verifies the inherited
// blocks, frees them, works, starts its own threads and exits.
//
// The seed determines what each worker does, but not how they interleave. Ends with one line of
// counts.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <utility>
#include <vector>

#include "blocks.h"

namespace {

unsigned child_seconds;
std::atomic<bool> over{false};
std::atomic<std::uint64_t> operations{0}, births{0}, forks{0}, handed_over{0},
    freed_by_destructors{0}, signals{0}, trims{0};

/// The shared table through which threads exchange blocks.
constexpr std::size_t SLOTS = 1024;
struct Slot {
    std::mutex lock;
    Block block;
};
Slot table[SLOTS];

Block exchange(Random &random, Block block) {
    Slot &slot = table[random.below(SLOTS)];
    std::lock_guard<std::mutex> guard(slot.lock);
    std::swap(slot.block, block);
    handed_over++;
    return block;
}

/// The blocks that a thread leaves to its destructors. Like destructors in real programs, they also
/// allocate.
struct Estate {
    std::vector<Block> blocks;
    std::uint64_t seed = 0;
    void settle() {
        Random random(seed);
        for (Block &block : blocks) {
            Block other = take(random);
            give_back(random, block);
            give_back(random, other);
            freed_by_destructors++;
        }
        blocks.clear();
    }
};

pthread_key_t key;

/// glibc runs a key's destructor again if it has set the key again. So this one frees its blocks in
/// two rounds, the second after other destructors.
void key_destructor(void *pointer) {
    auto *estate = static_cast<Estate *>(pointer);
    if (estate->seed % 2 == 0) {
        estate->seed++;
        CHECK(pthread_setspecific(key, estate) == 0);
        return;
    }
    estate->settle();
    delete estate;
}

struct LocalEstate : Estate {
    ~LocalEstate() { settle(); }
};
thread_local LocalEstate local_estate;

void churn(Random &random, std::vector<Block> &held, unsigned steps, std::size_t most) {
    for (unsigned i = 0; i < steps; i++) {
        if (held.size() < most && !random.one_in(3)) {
            held.push_back(take(random));
            continue;
        }
        if (held.empty())
            continue;
        const std::size_t at = random.below(held.size());
        if (random.one_in(4)) {
            resize(random, held[at]);
        } else {
            give_back(random, held[at]);
            held[at] = held.back();
            held.pop_back();
        }
    }
}

void *child_thread(void *argument) {
    Random random(reinterpret_cast<std::uintptr_t>(argument));
    std::vector<Block> held;
    churn(random, held, 300, 50);
    for (Block &block : held)
        give_back(random, block);
    return nullptr;
}

[[noreturn]] void be_child(Random &random, std::vector<Block> &held) {
    // Kills a child that waits for a lock that no thread holds any more; its parent reports it.
    signal(SIGALRM, SIG_DFL);
    alarm(child_seconds);
    for (Block &block : held)
        give_back(random, block);
    held.clear();
    churn(random, held, 500, 100);
    pthread_t threads[3];
    for (auto &thread : threads) {
        CHECK(pthread_create(&thread, nullptr, child_thread,
                             reinterpret_cast<void *>(random.next())) == 0);
    }
    for (auto &thread : threads)
        CHECK(pthread_join(thread, nullptr) == 0);
    malloc_trim(0);
    if (random.one_in(4)) {
        // Forks again from the only thread.
        const pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            churn(random, held, 200, 100);
            _exit(0);
        }
        int status;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    }
    for (Block &block : held)
        give_back(random, block);
    _exit(0);
}

void fork_here(Random &random, std::vector<Block> &held) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        be_child(random, held);
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        dprintf(STDERR_FILENO, "stress: a child of fork ended with status 0x%x (0xe: it hung)\n",
                status);
        abort();
    }
    forks++;
}

void ask_for_figures(Random &random) {
    if (random.one_in(2)) {
        malloc_trim(random.below(1 << 20));
        trims++;
    } else {
#ifdef __GLIBC__
        CHECK(mallinfo2().arena + mallinfo2().hblkhd > 0);
#endif
    }
}

void *worker(void *argument) {
    Random random(reinterpret_cast<std::uintptr_t>(argument));
    births++;
    std::vector<Block> held;
    const std::size_t most = 10 + random.below(400);
    const std::uint64_t life = 2 + random.below(25);
    for (std::uint64_t turn = 0; turn < life && !over; turn++) {
        errno = 4711;
        churn(random, held, 100, most);
        CHECK(errno == 4711);
        for (int i = 0; i < 20 && !held.empty(); i++) {
            Block &block = held[random.below(held.size())];
            block = exchange(random, block);
            if (block.bytes == nullptr) {
                block = held.back();
                held.pop_back();
            }
        }
        operations += 120;
        if (random.one_in(40))
            fork_here(random, held);
        if (random.one_in(300))
            ask_for_figures(random);
    }
    // The remaining blocks: a third each for the key's destructor, the thread_local's and the
    // table.
    auto *estate = new Estate;
    estate->seed = random.next();
    local_estate.seed = random.next();
    for (std::size_t i = 0; i < held.size(); i++) {
        if (i % 3 == 0)
            estate->blocks.push_back(held[i]);
        else if (i % 3 == 1)
            local_estate.blocks.push_back(held[i]);
        else if (Block other = exchange(random, held[i]); other.bytes != nullptr)
            give_back(random, other);
    }
    CHECK(pthread_setspecific(key, estate) == 0);
    return nullptr;
}

void on_signal(int) { signals++; }

void start_signals() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
    struct itimerval interval = {{0, 2000}, {0, 2000}};
    CHECK(setitimer(ITIMER_REAL, &interval, nullptr) == 0);
}

time_t now() {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 5);
    const time_t end = now() + atoi(arguments[2]);
    const int workers = atoi(arguments[3]);
    child_seconds = static_cast<unsigned>(atoi(arguments[4]));
    CHECK(pthread_key_create(&key, key_destructor) == 0);
    start_signals();
    Random random(strtoull(arguments[1], nullptr, 10));
    std::vector<pthread_t> threads(workers);
    const auto start = [&](pthread_t &thread) {
        CHECK(pthread_create(&thread, nullptr, worker, reinterpret_cast<void *>(random.next())) ==
              0);
    };
    for (pthread_t &thread : threads)
        start(thread);
    // Joins the workers in turn and replaces each by a new one. Goes on until everything happened,
    // because on a busy machine little does in a second.
    const auto all_happened = [] {
        return operations > 0 && forks > 0 && handed_over > 0 && freed_by_destructors > 0 &&
               signals > 0;
    };
    for (std::size_t turn = 0; turn < threads.size() || now() < end || !all_happened(); turn++) {
        pthread_t &thread = threads[turn % threads.size()];
        CHECK(pthread_join(thread, nullptr) == 0);
        start(thread);
    }
    over = true;
    for (pthread_t &thread : threads)
        CHECK(pthread_join(thread, nullptr) == 0);
    for (Slot &slot : table) {
        if (slot.block.bytes != nullptr)
            give_back(random, slot.block);
    }
    std::printf("operations=%llu births=%llu forks=%llu handed_over=%llu freed_by_destructors=%llu "
                "signals=%llu trims=%llu\n",
                static_cast<unsigned long long>(operations),
                static_cast<unsigned long long>(births), static_cast<unsigned long long>(forks),
                static_cast<unsigned long long>(handed_over),
                static_cast<unsigned long long>(freed_by_destructors),
                static_cast<unsigned long long>(signals), static_cast<unsigned long long>(trims));
}
