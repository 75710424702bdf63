// The start and end of a program, when an allocator is called earlier or later than expected:
// before main, in constructors, in destructors of threads and of the program, in handlers of atexit
// and fork, in plug-ins, in children. `lifecycle PLUGIN` prints what happens; the text is the same
// with every working allocator.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <langinfo.h>
#include <locale.h>
#include <malloc.h>
#include <memory>
#include <pthread.h>
#include <regex.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.h"

extern char **environ;

namespace {

void *before_everything = nullptr;
std::atomic<int> prepared{0}, destructor_runs{0};

void in_preinit() {
    before_everything = malloc(333);
    memset(before_everything, 'e', 333);
    for (int i = 0; i < 2000; i++)
        free(calloc(1, i));
}

__attribute__((constructor(101))) void in_first_constructor() {
#ifndef __GLIBC__
    /* Nothing comes before the constructors there. */
    in_preinit();
#endif
    CHECK(before_everything != nullptr && static_cast<char *>(before_everything)[332] == 'e');
    before_everything = realloc(before_everything, 100000);
    CHECK(static_cast<char *>(before_everything)[332] == 'e');
}

struct Global {
    std::vector<std::string> words;
    void *page = nullptr;
    Global() {
        for (int i = 0; i < 3000; i++)
            words.emplace_back(i % 90, 'g');
        CHECK(posix_memalign(&page, 4096, 9000) == 0);
    }
    ~Global() {
        std::size_t total = 0;
        for (auto &word : words)
            total += word.size();
        free(page);
        std::printf("static destructor: %zu\n", total);
    }
};
Global global;

void at_exit() {
    std::string text(5000, 'x');
    free(before_everything);
    std::printf("atexit: %zu\n", text.size());
}

void key_destructor(void *value) {
    // Allocates and frees in a thread's last moments, in every round that glibc grants.
    auto *list = static_cast<std::vector<void *> *>(value);
    for (void *block : *list)
        free(block);
    delete list;
    void *again = malloc(777);
    CHECK(again != nullptr);
    free(again);
    destructor_runs++;
}

void thread_keys() {
    pthread_key_t keys[40];
    for (auto &key : keys)
        CHECK(pthread_key_create(&key, key_destructor) == 0);
    for (int round = 0; round < 5; round++) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 10; t++) {
            threads.emplace_back([&keys, t] {
                thread_local std::string own(1000 + t, 't');
                CHECK(own.size() == 1000u + t);
                for (auto &key : keys) {
                    auto *list = new std::vector<void *>;
                    for (int i = 0; i < 50; i++)
                        list->push_back(malloc(i * 37 + t));
                    CHECK(pthread_setspecific(key, list) == 0);
                }
            });
        }
        for (auto &thread : threads)
            thread.join();
    }
    std::printf("key destructors: %d\n", destructor_runs.load());
}

void cancelled_threads() {
    int cancelled = 0;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        CHECK(pthread_create(
                  &thread, nullptr,
                  [](void *) -> void * {
                      for (;;) {
                          free(malloc(1000));
                          pthread_testcancel();
                      }
                  },
                  nullptr) == 0);
        CHECK(pthread_cancel(thread) == 0);
        void *result;
        CHECK(pthread_join(thread, &result) == 0);
        cancelled += result == PTHREAD_CANCELED;
    }
    std::printf("cancelled: %d\n", cancelled);
}

void plugins(const char *path) {
    for (int round = 0; round < 20; round++) {
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (plugin == nullptr)
            std::fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin != nullptr);
        auto *make = reinterpret_cast<char *(*)(int)>(dlsym(plugin, "plugin_make"));
        auto *drop = reinterpret_cast<void (*)(char *)>(dlsym(plugin, "plugin_drop"));
        CHECK(make != nullptr && drop != nullptr);
        char *text = make(round * 20);
        std::thread([&] { drop(make(round)); }).join();
        CHECK(dlclose(plugin) == 0);
        if (round == 19)
            std::printf("plugin: %zu\n", strlen(text));
        free(text);
    }
}

void fork_handlers() {
    // The handlers allocate while the allocator itself prepares for the fork.
    CHECK(pthread_atfork([] { free(malloc(100)), prepared++; }, [] { free(malloc(200)); },
                         [] { free(malloc(300)); }) == 0);
    std::atomic<bool> stop{false};
    std::vector<std::thread> noise;
    for (int t = 0; t < 4; t++) {
        noise.emplace_back([&stop] {
            for (unsigned i = 0; !stop; i++)
                free(malloc(i * 7919 % 60000));
        });
    }
    int good = 0;
    for (int i = 0; i < 60; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(180);
            std::vector<std::string> words;
            for (int k = 0; k < 300; k++)
                words.emplace_back(k, 'c');
            std::thread([] { free(malloc(5000)); }).join();
            _exit(words.size() == 300 ? 7 : 8);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    }
    stop = true;
    for (auto &thread : noise)
        thread.join();
    std::printf("forks: %d of %d\n", good, prepared.load());
}

void children() {
#ifdef __GLIBC__
    if (is_emulated())
#endif
        /* The shell may be of another C library or processor, for which the library is none. */
        unsetenv("LD_PRELOAD");
    for (int i = 0; i < 5; i++) {
        FILE *pipe = popen("echo from a child; exit 3", "r");
        CHECK(pipe != nullptr);
        char *line = nullptr;
        std::size_t size = 0;
        CHECK(getline(&line, &size, pipe) > 0);
        const int status = pclose(pipe);
        if (i == 4)
            std::printf("popen: %d %s", WEXITSTATUS(status), line);
        free(line);
    }
    const char *const arguments[] = {"sh", "-c", "exit 5", nullptr};
    pid_t spawned;
    CHECK(posix_spawnp(&spawned, "sh", nullptr, nullptr, const_cast<char *const *>(arguments),
                       environ) == 0);
    int status;
    CHECK(waitpid(spawned, &status, 0) == spawned);
    std::printf("spawned: %d\n", WEXITSTATUS(status));
}

/// Memory that the C library allocates and the program must free.
void c_library() {
    char *text = nullptr;
    CHECK(asprintf(&text, "%0*d", 5000, 7) == 5000);
    char *copy = strdup(text);
    CHECK(strcmp(copy, text) == 0);
    free(text), free(copy);
    char *here = getcwd(nullptr, 0), *root = realpath("/usr/../", nullptr);
    CHECK(here != nullptr && strcmp(root, "/") == 0);
    free(here), free(root);
    struct dirent **names = nullptr;
    const int count = scandir("/", &names, nullptr, alphasort);
    CHECK(count > 2);
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    regex_t pattern;
    CHECK(regcomp(&pattern, "^(a|b)*c{2,40}[[:alpha:]]+(x|y|z)$", REG_EXTENDED) == 0);
    std::printf("regex: %d %d\n", regexec(&pattern, "ababccccqqqz", 0, nullptr, 0),
                regexec(&pattern, "abq", 0, nullptr, 0));
    regfree(&pattern);
    std::vector<int> numbers(300000);
    for (std::size_t i = 0; i < numbers.size(); i++)
        numbers[i] = static_cast<int>(i * 7919 % 300007);
    qsort(numbers.data(), numbers.size(), sizeof(int), [](const void *a, const void *b) {
        return *static_cast<const int *>(a) - *static_cast<const int *>(b);
    });
    std::printf("qsort: %d %d\n", numbers.front(), numbers.back());
    std::printf("locale: %s\n",
                setlocale(LC_ALL, "C.UTF-8") != nullptr ? nl_langinfo(CODESET) : "none");
}

} // namespace

#ifdef __GLIBC__
__attribute__((section(".preinit_array"), used)) static void (*const preinit)() = in_preinit;
#endif

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(atexit(at_exit) == 0);
    thread_keys();
    cancelled_threads();
    plugins(arguments[1]);
    children();
    c_library();
    fork_handlers();
    std::fflush(stdout);
    // Threads that go on allocating while the program ends.
    for (int t = 0; t < 4; t++) {
        std::thread([] {
            for (unsigned i = 0;; i++)
                free(malloc(i * 31 % 9000));
        }).detach();
    }
    return 0;
}
