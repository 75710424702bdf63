// A C++ program whose blocks come from many places: containers, regular expressions, exceptions,
// callbacks of the C library, virtual calls, realigned frames, and threads. Its stacks have to be
// whole (tests/profiles).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual std::string name(unsigned n) const = 0;
};

struct Square : Shape {
    std::string name(unsigned n) const override { return std::string(20 + n % 50, 's'); }
};

struct Circle : Shape {
    std::string name(unsigned n) const override {
        alignas(64) char room[256];
        snprintf(room, sizeof room, "%0*u", 40, n);
        return room;
    }
};

static int compare(const void *a, const void *b) {
    auto text = std::make_unique<std::string>(30, 'c');
    return *static_cast<const int *>(a) - *static_cast<const int *>(b) + (text->empty() ? 1 : 0);
}

static unsigned fail(unsigned depth) {
    std::vector<char> room(depth * 10 + 1);
    if (depth == 0)
        throw std::runtime_error("the bottom");
    return fail(depth - 1) + static_cast<unsigned>(room.size());
}

static size_t work(unsigned seed) {
    std::map<std::string, unsigned> words;
    std::vector<std::unique_ptr<Shape>> shapes;
    for (unsigned i = 0; i < 3000; i++) {
        words[std::to_string((i * 7919 + seed) % 997)]++;
        if (i % 3 == 0)
            shapes.push_back(std::make_unique<Square>());
        if (i % 3 == 1)
            shapes.push_back(std::make_unique<Circle>());
    }
    std::function<size_t(unsigned)> sum = [&](unsigned n) -> size_t {
        return n == 0 ? 0 : shapes[n]->name(n).size() + sum(n - 1);
    };
    std::ostringstream out;
    for (auto &word : words)
        out << word.first << ' ' << word.second << '\n';
    std::regex pattern("(1[0-9]+|2)3");
    std::smatch found;
    std::string text = out.str().substr(0, 2000);
    size_t matches = std::regex_search(text, found, pattern) ? found.size() : 0;
    int numbers[200];
    for (int i = 0; i < 200; i++)
        numbers[i] = i * 37 % 200;
    qsort(numbers, 200, sizeof *numbers, compare);
    try {
        fail(20);
    } catch (const std::exception &e) {
        matches += std::string(e.what()).size();
    }
    return sum(200) + matches + words.size();
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++)
        threads.emplace_back([i] { work(i); });
    size_t done = work(99);
    for (auto &thread : threads)
        thread.join();
    printf("%zu\n", done);
    return 0;
}
