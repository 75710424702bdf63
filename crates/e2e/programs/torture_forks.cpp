// Fork torture: `torture_forks FORKS CHILD_SECONDS [noexec] [nohandlers]`. Eight threads use every
// interface (`blocks.h`) and share blocks, and each of them forks, while further threads come and
// go. The forks are of every kind: by `fork`, with handlers of `pthread_atfork` that allocate; in
// the handler of a signal that interrupts calls of the allocator; by `vfork` and `posix_spawn`,
// which execute this program again (not with `noexec`). With `nohandlers`, no handler of a signal
// forks. A child verifies and frees what it has from its parent, works, starts threads, and forks
// again. Ends with one line of counts once there were so many forks, children's included. An alarm
// ends a hang.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "torture.h"

extern char **environ;

namespace {

enum {
    THREADS = 8,
    DEPTH_MAX = 3,
    SIGNAL_NS = 4000000,
};

/// Of all processes.
struct Counts {
    std::atomic<long> left, forks, in_handlers, vforks, spawned, children, child_threads;
};
Counts *counts;
const char *self;
unsigned child_seconds;
bool may_exec = true, has_handlers = true;
int depth = 0;

/// Whether the handler of the signal may fork: the thread is in a call of the allocator, or in none
/// at all. A fork in a fork, or in other functions of the C library, would wait for locks of its
/// own thread.
thread_local volatile sig_atomic_t may_fork = 0;
thread_local volatile sig_atomic_t is_in_handler = 0;
/// What the handlers of a fork hold, one above the other.
thread_local void *kept[8];
thread_local std::size_t kept_blocks = 0;

void expect_end(pid_t child, const char *kind) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (status != 0)
        dprintf(STDERR_FILENO, "a child by %s ended with status %#x (0xe: it hung)\n", kind,
                static_cast<unsigned>(status));
    CHECK(status == 0);
}

/// Takes one of the forks that are left.
bool take_turn() {
    if (counts->left.fetch_sub(1) > 0)
        return true;
    counts->left.fetch_add(1);
    return false;
}

void before_fork() {
    for (std::size_t i = 0; i < 4 && !is_in_handler; i++)
        CHECK((kept[kept_blocks++] = malloc(40 + i * 30000)) != nullptr);
}

void after_fork() {
    if (is_in_handler)
        return;
    for (std::size_t i = 0; i < 4; i++)
        free(kept[--kept_blocks]);
    free(malloc(2 << 20));
}

/// Handlers that are there before the first allocation.
__attribute__((constructor(101))) void register_first() {
    CHECK(pthread_atfork(before_fork, after_fork, after_fork) == 0);
}

/// Forks in the handler, a quarter of all. The child may call nothing but functions that are safe
/// there.
void on_signal(int) {
    if (!may_fork || is_in_handler || depth > 0 || counts->in_handlers > counts->forks / 4)
        return;
    if (!take_turn())
        return;
    const int before = errno;
    is_in_handler = 1;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    expect_end(child, "fork in a handler");
    counts->forks++;
    counts->in_handlers++;
    is_in_handler = 0;
    errno = before;
}

void fork_by_fork(Worker &worker);

[[noreturn]] void be_child(Worker &worker) {
    depth++;
    // Kills a child that waits for a lock that no thread holds any more; its parent reports it.
    alarm(child_seconds);
    worker.random = Random(worker.random.next() ^ static_cast<std::uint64_t>(getpid()));
    worker.work(50);
    worker.end();
    if (worker.random.one_in(4))
        worker.take_shared();
    if (worker.random.one_in(3)) {
        start_and_join(worker.random, 2);
        counts->child_threads += 2;
    }
    if (depth < DEPTH_MAX && worker.random.one_in(3))
        fork_by_fork(worker);
    worker.work(50);
    worker.end();
    if (worker.random.one_in(8))
        worker.ask();
    counts->children++;
    _exit(0);
}

void fork_by_fork(Worker &worker) {
    if (!take_turn())
        return;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        be_child(worker);
    expect_end(child, "fork");
    counts->forks++;
}

void execute_anew(Worker &worker) {
    if (!may_exec || !take_turn())
        return;
    char *const arguments[] = {const_cast<char *>(self), const_cast<char *>("child"), nullptr};
    if (worker.random.one_in(2)) {
        const pid_t child = vfork();
        CHECK(child >= 0);
        if (child == 0) {
            execve(self, arguments, environ);
            _exit(98);
        }
        expect_end(child, "vfork");
        counts->vforks++;
    } else {
        pid_t child;
        CHECK(posix_spawn(&child, self, nullptr, nullptr, arguments, environ) == 0);
        expect_end(child, "posix_spawn");
        counts->spawned++;
    }
    counts->forks++;
}

void *run(void *seed) {
    Worker worker(reinterpret_cast<std::uintptr_t>(seed));
    Timer timer(SIGUSR1, SIGNAL_NS);
    while (counts->left > 0) {
        may_fork = 1;
        worker.work(150);
        worker.share();
        may_fork = 0;
        const std::uint64_t kind = worker.random.below(16);
        if (kind < 10)
            fork_by_fork(worker);
        else if (kind == 10)
            execute_anew(worker);
        else if (kind == 11)
            start_and_join(worker.random, 4);
        else if (kind == 12)
            worker.ask();
    }
    worker.end();
    return nullptr;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const auto has_word = [&](const char *word) {
        for (int i = 3; i < count; i++)
            if (strcmp(arguments[i], word) == 0)
                return true;
        return false;
    };
    if (strcmp(arguments[1], "child") == 0) {
        Worker worker(static_cast<std::uint64_t>(getpid()));
        worker.work(100);
        worker.end();
        return 0;
    }
    self = "/proc/self/exe";
    CHECK(count >= 3);
    may_exec = !has_word("noexec");
    has_handlers = !has_word("nohandlers");
    const long forks = atol(arguments[1]);
    child_seconds = static_cast<unsigned>(atoi(arguments[2]));
    // More than a tenth of a second for each on a busy machine.
    alarm(static_cast<unsigned>(240 + forks / 4));
    void *at =
        mmap(nullptr, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    counts = new (at) Counts();
    counts->left = forks;
    CHECK(pthread_atfork(before_fork, after_fork, after_fork) == 0);
    make_arenas();
    handle(SIGUSR1, has_handlers ? on_signal : SIG_IGN, 0);
    pthread_t threads[THREADS];
    for (std::uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], nullptr, run, reinterpret_cast<void *>(i + 1)) == 0);
    for (pthread_t thread : threads)
        CHECK(pthread_join(thread, nullptr) == 0);
    Worker(1).take_shared();
    printf("forks=%ld in_handlers=%ld vforks=%ld spawned=%ld children=%ld child_threads=%ld\n",
           counts->forks.load(), counts->in_handlers.load(), counts->vforks.load(),
           counts->spawned.load(), counts->children.load(), counts->child_threads.load());
    return 0;
}
