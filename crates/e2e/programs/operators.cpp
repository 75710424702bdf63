// Every replaceable form of operator new and delete: alignment, pairing, the new-handler's loop and
// std::bad_alloc. `operators NAME` prints "NAME ok".
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

extern "C" int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

namespace {

volatile std::size_t impossible = SIZE_MAX / 4;

bool is_aligned(const void *p, std::size_t alignment) {
    return (reinterpret_cast<std::uintptr_t>(p) & (alignment - 1)) == 0;
}

void *fill(void *p, std::size_t n, std::size_t alignment = 8) {
    CHECK(p != nullptr);
    CHECK(is_aligned(p, alignment));
    std::memset(p, 0xcd, n);
    return p;
}

void forms() {
    for (std::size_t n = 0; n < 300000; n = n * 3 / 2 + 7) {
        // Each form of new, with each form of delete that may follow it.
        ::operator delete(fill(::operator new(n), n));
        ::operator delete(fill(::operator new(n), n), n);
        ::operator delete(fill(::operator new(n, std::nothrow), n), std::nothrow);
        ::operator delete(fill(::operator new(n, std::nothrow), n), n);
        ::operator delete[](fill(::operator new[](n), n));
        ::operator delete[](fill(::operator new[](n), n), n);
        ::operator delete[](fill(::operator new[](n, std::nothrow), n), std::nothrow);
        for (std::size_t a = 1; a <= 1 << 21; a *= 4) {
            const auto align = static_cast<std::align_val_t>(a);
            ::operator delete(fill(::operator new(n, align), n, a), align);
            ::operator delete(fill(::operator new(n, align), n, a), n, align);
            ::operator delete(fill(::operator new(n, align, std::nothrow), n, a), align,
                              std::nothrow);
            ::operator delete[](fill(::operator new[](n, align), n, a), align);
            ::operator delete[](fill(::operator new[](n, align), n, a), n, align);
            ::operator delete[](fill(::operator new[](n, align, std::nothrow), n, a), align,
                                std::nothrow);
        }
    }
    void *none = nullptr;
    ::operator delete(none);
    ::operator delete(none, 10);
    ::operator delete(none, std::nothrow);
    ::operator delete[](none);
    ::operator delete[](none, 10);
    ::operator delete[](none, std::nothrow);
    ::operator delete(none, std::align_val_t(64));
    ::operator delete(none, 10, std::align_val_t(64));
    ::operator delete(none, std::align_val_t(64), std::nothrow);
    ::operator delete[](none, std::align_val_t(64));
    ::operator delete[](none, 10, std::align_val_t(64));
    ::operator delete[](none, std::align_val_t(64), std::nothrow);
    void *a = ::operator new(0), *b = ::operator new(0);
    CHECK(a != b);
    ::operator delete(a);
    ::operator delete(b);
}

template <class Take> bool throws_bad_alloc(Take take) {
    try {
        take();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void bad_alloc() {
    const std::size_t n = impossible;
    const auto align = std::align_val_t(64);
    CHECK(std::get_new_handler() == nullptr);
    CHECK(throws_bad_alloc([&] { (void)::operator new(n); }));
    CHECK(throws_bad_alloc([&] { (void)::operator new[](n); }));
    CHECK(throws_bad_alloc([&] { (void)::operator new(n, align); }));
    CHECK(throws_bad_alloc([&] { (void)::operator new[](n, align); }));
    CHECK(::operator new(n, std::nothrow) == nullptr);
    CHECK(::operator new[](n, std::nothrow) == nullptr);
    CHECK(::operator new(n, align, std::nothrow) == nullptr);
    CHECK(::operator new[](n, align, std::nothrow) == nullptr);
    // The exception must leave the heap unchanged.
    std::map<int, std::string> map;
    for (int i = 0; i < 1000; i++)
        map[i] = std::string(i, 'x');
    CHECK(throws_bad_alloc([&] { map[5].resize(n); }));
    CHECK(map[5] == "xxxxx" && map.size() == 1000);
}

int calls = 0;

void give_up_after_three() {
    if (++calls == 3)
        std::set_new_handler(nullptr);
}

void throw_at_second() {
    if (++calls == 2)
        throw std::bad_alloc();
}

template <class Take> void expect_calls(std::new_handler handler, int expected, Take take) {
    calls = 0;
    std::set_new_handler(handler);
    take();
    std::set_new_handler(nullptr);
    CHECK(calls == expected);
}

void new_handler() {
    const std::size_t n = impossible;
    const auto align = std::align_val_t(4096);
    expect_calls(give_up_after_three, 3,
                 [&] { CHECK(throws_bad_alloc([&] { (void)::operator new(n); })); });
    expect_calls(give_up_after_three, 3,
                 [&] { CHECK(throws_bad_alloc([&] { (void)::operator new[](n); })); });
    expect_calls(give_up_after_three, 3,
                 [&] { CHECK(throws_bad_alloc([&] { (void)::operator new(n, align); })); });
    expect_calls(give_up_after_three, 3,
                 [&] { CHECK(throws_bad_alloc([&] { (void)::operator new[](n, align); })); });
    expect_calls(throw_at_second, 2,
                 [&] { CHECK(throws_bad_alloc([&] { (void)::operator new(n); })); });
    // The nothrow forms also run the handler, and return nullptr if it throws.
    expect_calls(throw_at_second, 2, [&] { CHECK(::operator new(n, std::nothrow) == nullptr); });
    expect_calls(throw_at_second, 2, [&] { CHECK(::operator new[](n, std::nothrow) == nullptr); });
    expect_calls(throw_at_second, 2,
                 [&] { CHECK(::operator new(n, align, std::nothrow) == nullptr); });
    expect_calls(throw_at_second, 2,
                 [&] { CHECK(::operator new[](n, align, std::nothrow) == nullptr); });
    expect_calls(give_up_after_three, 0, [] { ::operator delete(::operator new(100)); });
}

std::vector<void *> reserve;

// The usual purpose of a handler: it frees a reserve, and the request succeeds.
void release_reserve() {
    calls++;
    if (reserve.empty())
        throw std::bad_alloc();
    for (void *block : reserve)
        ::operator delete(block);
    reserve.clear();
}

// Run under a small RLIMIT_AS.
void handler_frees() {
    const std::size_t block = 1 << 20;
    reserve.reserve(10000);
    for (;;) {
        void *p = ::operator new(block, std::nothrow);
        if (p == nullptr)
            break;
        reserve.push_back(p);
    }
    CHECK(reserve.size() > 8 && reserve.size() < 10000);
    calls = 0;
    std::set_new_handler(release_reserve);
    void *p = ::operator new(8 * block);
    CHECK(calls == 1);
    std::memset(p, 1, 8 * block);
    ::operator delete(p);
}

std::jmp_buf back;
bool jumps = false;

void on_failure(const char *line) {
    calls++;
    CHECK(std::strstr(line, "operator new") != nullptr);
    if (jumps)
        std::longjmp(back, 1);
}

// Run with experimental_infallible_new: the program's function for failures may return, and `new`
// is then null, or jump.
void failures_are_told() {
    const std::size_t n = impossible;
    const auto align = std::align_val_t(64);
    void (*function)(const char *) = on_failure;
    CHECK(mallctl("experimental.hooks.safety_check_abort", nullptr, nullptr, &function,
                  sizeof function) == 0);
    expect_calls(throw_at_second, 1, [&] { CHECK(::operator new(n) == nullptr); });
    expect_calls(nullptr, 1, [&] { CHECK(::operator new[](n) == nullptr); });
    expect_calls(nullptr, 1, [&] { CHECK(::operator new(n, align) == nullptr); });
    expect_calls(nullptr, 1, [&] { CHECK(::operator new(n, std::nothrow) == nullptr); });
    expect_calls(nullptr, 1, [&] { CHECK(::operator new(n, align, std::nothrow) == nullptr); });
    jumps = true;
    expect_calls(nullptr, 1, [&] {
        if (setjmp(back) == 0) {
            (void)::operator new(n);
            CHECK(false);
        }
    });
    ::operator delete(::operator new(100));
}

struct alignas(256) Wide {
    char bytes[300];
};

void library() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++) {
        threads.emplace_back([t] {
            std::map<std::string, std::shared_ptr<std::vector<int>>> map;
            std::vector<std::unique_ptr<Wide>> wides;
            std::function<int(int)> chain = [t](int n) { return n + t; };
            for (int i = 0; i < 3000; i++) {
                auto &slot = map[std::to_string(i * 31 % 700)];
                if (!slot)
                    slot = std::make_shared<std::vector<int>>();
                slot->push_back(i);
                if (i % 10 == 0) {
                    wides.push_back(std::make_unique<Wide>());
                    CHECK(is_aligned(wides.back().get(), 256));
                }
                if (i % 500 == 0)
                    chain = [inner = chain](int n) { return inner(n) + 1; };
            }
            std::size_t total = 0;
            for (auto &entry : map)
                total += entry.second->size();
            CHECK(total == 3000 && chain(1) == 1 + t + 6);
        });
    }
    for (auto &thread : threads)
        thread.join();
    delete[] new std::string[100];
    delete new Wide;
    delete[] new Wide[7];
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 2);
    const std::map<std::string, void (*)()> tests = {
        {"forms", forms},
        {"bad_alloc", bad_alloc},
        {"new_handler", new_handler},
        {"handler_frees", handler_frees},
        {"library", library},
        {"failures_are_told", failures_are_told},
    };
    auto found = tests.find(arguments[1]);
    CHECK(found != tests.end());
    found->second();
    std::printf("%s ok\n", arguments[1]);
}
