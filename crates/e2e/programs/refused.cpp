// Requests that no system grants, as C++ makes them: each calls the new-handler and throws
// std::bad_alloc, which the program catches, or gives null. A program (`refused SIZE`, which prints
// "refused ok"), and a plug-in for refused-host.c.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "refused.h"

namespace {

int calls = 0, alive = 0;

void give_up() {
    calls++;
    std::set_new_handler(nullptr);
}

void throw_at_third() {
    if (++calls == 3)
        throw std::bad_alloc();
}

struct Alive {
    std::string text = std::string(1000, 'a');
    Alive() { alive++; }
    ~Alive() { alive--; }
};

// Whether it throws, with one call of the handler, and destroys what is on the way.
template <class Take> bool is_refused(Take take) {
    calls = 0;
    std::set_new_handler(give_up);
    try {
        Alive on_the_way;
        take();
    } catch (const std::bad_alloc &error) {
        return calls == 1 && alive == 0 && error.what()[0] != 0;
    }
    return false;
}

struct alignas(128) Wide {
    char bytes[128];
};

void all_are_refused(std::size_t size) {
    CHECK(is_refused([=] { delete[] new char[size]; }));
    CHECK(is_refused([=] { ::operator delete(::operator new(size)); }));
    CHECK(is_refused([=] { delete[] new Wide[size / sizeof(Wide)]; }));
    CHECK(is_refused([=] { std::vector<char> bytes(size); }));
    CHECK(is_refused([=] { std::string text(size, 'x'); }));
    CHECK(is_refused([=] { std::make_unique<char[]>(size); }));
    calls = 0;
    CHECK(new (std::nothrow) char[size] == nullptr);
    CHECK(new (std::nothrow) Wide[size / sizeof(Wide)] == nullptr);
    CHECK(::operator new(size, std::nothrow) == nullptr);
    CHECK(calls == 0);
    // The handler runs for these too, and ends them by an exception.
    std::set_new_handler(throw_at_third);
    CHECK(new (std::nothrow) char[size] == nullptr &&calls == 3);
    std::set_new_handler(nullptr);
}

// The exception passes from one thread to the other.
void thread_is_refused(std::size_t size) {
    std::exception_ptr thrown;
    std::thread([&] {
        try {
            refused_throws(size);
        } catch (...) {
            thrown = std::current_exception();
        }
    }).join();
    CHECK(thrown);
    CHECK(is_refused([&] {
        give_up();
        std::rethrow_exception(thrown);
    }));
}

} // namespace

extern "C" void refused_throws(std::size_t size) {
    std::function<char *()> take = [=] { return new char[size]; };
    CHECK(take() == nullptr);
}

extern "C" void refused_inside(std::size_t size) {
    for (int i = 0; i < 3; i++)
        all_are_refused(size);
    thread_is_refused(size);
    // The heap works as before.
    std::vector<std::string> lines;
    for (int i = 0; i < 1000; i++)
        lines.push_back(std::string(static_cast<std::size_t>(i), 'y'));
    CHECK(lines[999].size() == 999);
}

#ifndef PLUGIN
#include "expendable.h"

int main(int count, char **arguments) {
    CHECK(count == 2);
    be_expendable(10);
    refused_inside(std::strtoul(arguments[1], nullptr, 10));
    std::puts("refused ok");
}
#endif
