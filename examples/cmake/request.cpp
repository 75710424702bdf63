// An arena for each request: containers allocate from it, and one call frees everything when the
// request is done.
#include <mallard.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

// An arena that exists as long as this object.
class Arena {
  public:
    Arena() {
        size_t length = sizeof number_;
        if (mallctl("arenas.create", &number_, &length, nullptr, 0) != 0)
            throw std::bad_alloc();
    }
    ~Arena() { control("destroy"); }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    void *take(size_t size, size_t alignment) {
        void *block = mallocx(size, flags() | MALLOCX_ALIGN(alignment));
        if (block == nullptr)
            throw std::bad_alloc();
        return block;
    }
    void give(void *block) { dallocx(block, flags()); }
    // Frees all blocks of the arena.
    void reset() { control("reset"); }
    // The bytes in its blocks, small and large.
    size_t allocated() const {
        uint64_t epoch = 1;
        mallctl("epoch", nullptr, nullptr, &epoch, sizeof epoch);
        const std::string prefix = "stats.arenas." + std::to_string(number_);
        size_t sum = 0;
        for (const char *kind : {".small.allocated", ".large.allocated"}) {
            size_t bytes = 0, length = sizeof bytes;
            if (mallctl((prefix + kind).c_str(), &bytes, &length, nullptr, 0) != 0) {
                throw std::runtime_error("no statistics of the arena");
            }
            sum += bytes;
        }
        return sum;
    }

  private:
    int flags() const { return MALLOCX_ARENA(number_) | MALLOCX_TCACHE_NONE; }
    void control(const char *what) {
        mallctl(("arena." + std::to_string(number_) + "." + what).c_str(), nullptr, nullptr,
                nullptr, 0);
    }
    unsigned number_ = 0;
};

// Lets the standard library's containers allocate from an arena.
template <class T> struct Allocator {
    using value_type = T;
    Arena *arena;
    explicit Allocator(Arena &from) : arena(&from) {}
    template <class U> Allocator(const Allocator<U> &other) : arena(other.arena) {}
    T *allocate(size_t count) {
        return static_cast<T *>(arena->take(count * sizeof(T), alignof(T)));
    }
    void deallocate(T *block, size_t) { arena->give(block); }
    template <class U> bool operator==(const Allocator<U> &other) const {
        return arena == other.arena;
    }
    template <class U> bool operator!=(const Allocator<U> &other) const {
        return arena != other.arena;
    }
};

int main() {
    Arena arena;
    using Words = std::vector<int, Allocator<int>>;
    using Index = std::map<int, Words, std::less<int>, Allocator<std::pair<const int, Words>>>;
    {
        Index index{Allocator<std::pair<const int, Words>>(arena)};
        for (int i = 0; i < 20000; i++) {
            index.try_emplace(i % 500, Allocator<int>(arena)).first->second.push_back(i);
        }
        std::cout << "filled: " << arena.allocated() << "\n";
    }
    std::cout << "emptied: " << arena.allocated() << "\n";

    // The reset also frees what the program leaks.
    for (int i = 0; i < 5000; i++)
        arena.take(100 + i, 16);
    std::cout << "leaked: " << arena.allocated() << "\n";
    arena.reset();
    std::cout << "reset: " << arena.allocated() << "\n";

    // The rest of the program also runs on Mallard.
    std::vector<std::string> lines(1000, std::string(100, 'x'));
    std::cout << "lines: " << lines.size() * lines.front().size() << "\n";
}
