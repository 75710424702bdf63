// What threads do at the worst moments while their allocations are sampled: they load and unload a
// library, throw, fork, end, take signals whose handlers allocate, and run on stacks of their own.
// Meanwhile one thread switches sampling, resets it and writes profiles. Arguments: a library to
// load, a file for profiles, seconds.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" int mallctl(const char *, void *, size_t *, void *, size_t);

static std::atomic<bool> stop;
static const char *library, *file;

static void allocate(unsigned n) {
    std::vector<std::string> texts;
    for (unsigned i = 0; i < 30; i++)
        texts.emplace_back((n * 31 + i * 97) % 3000, 'x');
    void *large = malloc(20000 + n % 100000);
    memset(large, 1, 16);
    large = realloc(large, 150000 + n % 300000);
    free(large);
}

static int deep(unsigned n, unsigned depth) {
    if (depth == 0) {
        allocate(n);
        if (n % 2 == 0)
            throw std::runtime_error(std::string(100 + n % 200, 'y'));
        return 1;
    }
    return deep(n, depth - 1) + 1;
}

static void in_signal(int) {
    free(malloc(100));
    operator delete(operator new(5000));
}

static void on_own_stack(void) { allocate(7); }

static void use_own_stack(unsigned n) {
    ucontext_t here, there;
    std::vector<char> stack(64 * 1024);
    getcontext(&there);
    there.uc_stack.ss_sp = stack.data();
    there.uc_stack.ss_size = stack.size();
    there.uc_link = &here;
    makecontext(&there, on_own_stack, 0);
    swapcontext(&here, &there);
    allocate(n);
}

static void work(unsigned thread) {
    for (unsigned n = thread; !stop; n += 8) {
        allocate(n);
        switch (n / 8 % 6) {
        case 0:
            if (void *handle = dlopen(library, RTLD_NOW))
                dlclose(handle);
            break;
        case 1:
            try {
                deep(n, 40);
            } catch (const std::exception &) {}
            break;
        case 2:
            if (n / 48 % 16 == 0) {
                pid_t child = fork();
                if (child == 0) {
                    allocate(n);
                    _exit(0);
                }
                int status;
                if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
                    fprintf(stderr, "a child ended with status %x\n", status);
                    _exit(1);
                }
            }
            break;
        case 3:
            std::thread(allocate, n).join();
            break;
        case 4:
            pthread_kill(pthread_self(), SIGUSR1);
            break;
        case 5:
            use_own_stack(n);
            break;
        }
    }
}

static void set(const char *name, void *value, size_t size) {
    int error = mallctl(name, nullptr, nullptr, value, size);
    if (error != 0) {
        fprintf(stderr, "%s: error %d\n", name, error);
        _exit(1);
    }
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    library = arguments[1];
    file = arguments[2];
    const time_t end = time(nullptr) + atoi(arguments[3]);
    signal(SIGUSR1, in_signal);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 8; i++)
        threads.emplace_back(work, i);
    for (unsigned n = 0; time(nullptr) < end; n++) {
        bool on = n % 4 != 3;
        set("prof.active", &on, sizeof on);
        if (n % 7 == 0) {
            size_t lg = 8 + n % 8;
            set("prof.reset", &lg, sizeof lg);
        }
        if (n % 3 == 0)
            set("prof.dump", &file, sizeof file);
        usleep(20000);
    }
    stop = true;
    for (auto &thread : threads)
        thread.join();
    puts("all threads ended");
    return 0;
}
