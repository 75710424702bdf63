// Exit torture: `torture_exits ROUNDS PLUGIN [noexec]`. Each round ends processes and threads in
// every way while others use every interface (`blocks.h`). The destructors of threads set their
// keys again as often as the C library permits, and allocate and free each time; so do the handlers
// of `atexit` and `at_quick_exit`, static objects, and plug-ins that are closed. Ends with one line
// of counts. An alarm ends a hang.
#include <climits>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "torture.h"

extern char **environ;

namespace {

enum { BESIDE = 4, KEYS = 8, CHILD_LIMIT_S = 120 };

#ifndef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 4
#endif

/// Of all processes.
struct Counts {
    std::atomic<long> rounds_of_keys, destroyed, at_exit, at_quick_exit, closed, ends;
};
Counts *counts;
const char *plugin;
bool may_exec = true;
pthread_key_t keys[KEYS];

/// The blocks of a key's value. Each round of destructors frees some and makes others.
struct Estate {
    int rounds = 0;
    pthread_key_t key = 0;
    Worker worker;
    explicit Estate(std::uint64_t seed) : worker(seed) { worker.work(30); }
};

void settle(void *value) {
    auto *estate = static_cast<Estate *>(value);
    counts->rounds_of_keys++;
    if (++estate->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        estate->worker.work(20);
        estate->worker.share();
        CHECK(pthread_setspecific(estate->key, estate) == 0);
        return;
    }
    estate->worker.end();
    delete estate;
}

/// An object that frees and allocates as it goes, of a thread or of the program.
struct Keeper {
    Worker worker;
    explicit Keeper(std::uint64_t seed) : worker(seed) { worker.work(40); }
    ~Keeper() {
        worker.work(40);
        worker.end();
        counts->destroyed++;
    }
};
Keeper of_program(4711);
thread_local Keeper of_thread(reinterpret_cast<std::uintptr_t>(&of_thread));

void work_at_exit(std::atomic<long> &count) {
    Worker worker(static_cast<std::uint64_t>(getpid()));
    worker.work(100);
    worker.share();
    worker.end();
    count++;
}

void at_end() { work_at_exit(counts->at_exit); }
void at_quick_end() { work_at_exit(counts->at_quick_exit); }

/// A thread with values of all keys, and a thread_local object.
void *ends_with_destructors(void *seed) {
    Random random(reinterpret_cast<std::uintptr_t>(seed));
    of_thread.worker.work(10);
    for (pthread_key_t key : keys) {
        auto *estate = new Estate(random.next());
        estate->key = key;
        CHECK(pthread_setspecific(key, estate) == 0);
    }
    return nullptr;
}

void *goes_on(void *seed) {
    Worker worker(reinterpret_cast<std::uintptr_t>(seed));
    for (;;) {
        worker.work(100);
        worker.share();
        if (worker.random.one_in(8)) {
            pthread_t thread;
            if (pthread_create(&thread, nullptr, ends_with_destructors,
                               seed_of(worker.random.next())) == 0)
                CHECK(pthread_detach(thread) == 0);
        }
    }
    return nullptr;
}

void *ends_the_process(void *) {
    exit(4);
    return nullptr;
}

/// Ends by itself, after the main thread.
void *outlives(void *seed) {
    usleep(2000);
    return ends_with_destructors(seed);
}

void start(Random &random, int n, void *(*run)(void *)) {
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, nullptr, run, seed_of(random.next())) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
}

using Make = char *(*)(int);
using Drop = void (*)(char *);

/// Opens and closes the plug-in. What it has made outlives it.
void *opens_and_closes(void *seed) {
    Random random(reinterpret_cast<std::uintptr_t>(seed));
    for (int i = 0; i < 5; i++) {
        void *handle = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
        CHECK(handle != nullptr);
        const auto make = reinterpret_cast<Make>(dlsym(handle, "plugin_make"));
        const auto drop = reinterpret_cast<Drop>(dlsym(handle, "plugin_drop"));
        char *kept = make(static_cast<int>(random.below(400)));
        drop(make(static_cast<int>(random.below(400))));
        CHECK(dlclose(handle) == 0);
        CHECK(strstr(kept, "a thread's own string") == kept);
        free(kept);
        counts->closed++;
    }
    return nullptr;
}

void open_and_close(Random &random) {
    pthread_t threads[BESIDE];
    for (auto &thread : threads)
        CHECK(pthread_create(&thread, nullptr, opens_and_closes, seed_of(random.next())) == 0);
    for (auto &thread : threads)
        CHECK(pthread_join(thread, nullptr) == 0);
}

void execute_anew() {
    char *const arguments[] = {const_cast<char *>("torture_exits"), nullptr};
    execve("/proc/self/exe", arguments, environ);
    CHECK(!"the program executed");
}

/// Makes a process that ends by `end` beside threads that go on, and checks how it ended.
template <class End> void expect_end(Random &random, int code, End end) {
    const std::uint64_t seed = random.next();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        Random own(seed);
        of_thread.worker.work(10);
        end(own);
        CHECK(!"the process ended");
    }
    // No alarm of its own would reach a process whose last thread takes no signals.
    int status = 0;
    for (long turn = 0; waitpid(child, &status, WNOHANG) == 0; turn++) {
        if (turn == CHILD_LIMIT_S * 1000L)
            kill(child, SIGKILL);
        usleep(1000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        dprintf(STDERR_FILENO, "a process that was to end with %d has status %#x (9: it hung)\n",
                code, static_cast<unsigned>(status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    counts->ends++;
}

void end_in_every_way(Random &random) {
    expect_end(random, 3, [](Random &own) {
        start(own, BESIDE, goes_on);
        usleep(static_cast<useconds_t>(own.below(3000)));
        exit(3);
    });
    expect_end(random, 4, [](Random &own) {
        start(own, BESIDE, goes_on);
        start(own, 1, ends_the_process);
        for (;;)
            pause();
    });
    expect_end(random, 5, [](Random &own) {
        start(own, BESIDE, goes_on);
        usleep(static_cast<useconds_t>(own.below(3000)));
        quick_exit(5);
    });
    expect_end(random, 6, [](Random &own) {
        start(own, BESIDE, goes_on);
        usleep(static_cast<useconds_t>(own.below(3000)));
        _exit(6);
    });
    // The last thread ends the process, with the handlers of `atexit`.
    expect_end(random, 0, [](Random &own) {
        start(own, BESIDE, outlives);
        pthread_exit(nullptr);
    });
    if (may_exec) {
        expect_end(random, 7, [](Random &own) {
            start(own, BESIDE, goes_on);
            usleep(static_cast<useconds_t>(own.below(3000)));
            execute_anew();
        });
    }
}

void end_threads(Random &random) {
    pthread_t threads[BESIDE];
    for (auto &thread : threads)
        CHECK(pthread_create(&thread, nullptr, ends_with_destructors, seed_of(random.next())) == 0);
    for (auto &thread : threads)
        CHECK(pthread_join(thread, nullptr) == 0);
}

/// Before all objects that count.
__attribute__((constructor(101))) void share_counts() {
    void *at =
        mmap(nullptr, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    counts = new (at) Counts();
}

} // namespace

int main(int count, char **arguments) {
    if (count == 1) {
        // Executed anew by a process that ends so.
        Worker worker(1);
        worker.work(100);
        worker.end();
        return 7;
    }
    CHECK(count >= 3);
    const long rounds = atol(arguments[1]);
    plugin = arguments[2];
    may_exec = count < 4;
    alarm(static_cast<unsigned>(240 + 2 * rounds));
    make_arenas();
    for (pthread_key_t &key : keys)
        CHECK(pthread_key_create(&key, settle) == 0);
    for (int i = 0; i < 30; i++)
        CHECK(atexit(at_end) == 0 && at_quick_exit(at_quick_end) == 0);
    Random random(1);
    for (long round = 0; round < rounds; round++) {
        end_threads(random);
        // A static program opens none.
        if (*plugin != 0)
            open_and_close(random);
        end_in_every_way(random);
    }
    Worker(1).take_shared();
    printf("ends=%ld rounds_of_keys=%ld destroyed=%ld at_exit=%ld at_quick_exit=%ld closed=%ld\n",
           counts->ends.load(), counts->rounds_of_keys.load(), counts->destroyed.load(),
           counts->at_exit.load(), counts->at_quick_exit.load(), counts->closed.load());
    return 0;
}
