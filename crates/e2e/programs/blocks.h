// Blocks from every interface that allocates, with contents that are checked: what the stress and
// torture programs do.
//
// Every block is filled with a pattern made from its tag, which is verified before each resize and
// free. This detects a block that overlaps another or loses a byte.
#ifndef MALLARD_E2E_BLOCKS_H
#define MALLARD_E2E_BLOCKS_H

#include <cstdint>
#include <cstring>
#include <new>

#include "check.h"
#include "malloc_more.h"

extern "C" {
void free_sized(void *, std::size_t) __attribute__((weak));
void free_aligned_sized(void *, std::size_t, std::size_t) __attribute__((weak));
void *mallocx(std::size_t, int) __attribute__((weak));
void *rallocx(void *, std::size_t, int) __attribute__((weak));
void dallocx(void *, int) __attribute__((weak));
void sdallocx(void *, std::size_t, int) __attribute__((weak));
}

namespace {

/// The flags of the extended interface, of which the allocator under test may have nothing.
constexpr int X_ZERO = 0x40, X_TCACHE_NONE = 1 << 8;
constexpr int x_arena(unsigned arena) { return static_cast<int>((arena + 1) << 20); }
constexpr int x_align(std::size_t alignment) {
    return alignment == 0 ? 0 : __builtin_ctzll(alignment);
}

/// xorshift64*: small, fast, and random enough for choices.
class Random {
  public:
    explicit Random(std::uint64_t start) : state(start * 0x9E3779B97F4A7C15u + 0x1234567u) {
        if (state == 0)
            state = 1;
        for (int i = 0; i < 4; i++)
            next();
    }
    std::uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545F4914F6CDD1Du;
    }
    std::uint64_t below(std::uint64_t bound) { return (next() >> 20) % bound; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }

  private:
    std::uint64_t state;
};

enum class Kind : std::uint8_t { Malloc, Aligned, New, NewArray, NewAligned, Extended };

struct Block {
    unsigned char *bytes = nullptr;
    std::size_t size = 0;
    std::size_t alignment = 0;
    std::uint32_t tag = 0;
    Kind kind = Kind::Malloc;
};

/// Calls the body for each byte that carries the pattern: all of a small block; in a large one both
/// ends and one byte per half KiB, so that each page is checked.
template <class Body> void each_marked_byte(const Block &block, Body body) {
    constexpr std::size_t WHOLE = 8192, STRIDE = 509;
    const auto mark = [&](std::size_t i) {
        body(i, static_cast<unsigned char>(block.tag + i * 31 + (i >> 8)));
    };
    if (block.size <= WHOLE) {
        for (std::size_t i = 0; i < block.size; i++)
            mark(i);
        return;
    }
    for (std::size_t i = 0; i < 64; i++)
        mark(i);
    for (std::size_t i = 64; i < block.size - 64; i += STRIDE)
        mark(i);
    for (std::size_t i = block.size - 64; i < block.size; i++)
        mark(i);
}

void fill(const Block &block) {
    each_marked_byte(block, [&](std::size_t i, unsigned char value) { block.bytes[i] = value; });
}

void verify(const Block &block) {
    each_marked_byte(block, [&](std::size_t i, unsigned char value) {
        if (block.bytes[i] != value) {
            dprintf(STDERR_FILENO, "byte %zu of a block of %zu at %p is 0x%02x instead of 0x%02x\n",
                    i, block.size, static_cast<void *>(block.bytes), block.bytes[i], value);
            abort();
        }
    });
}

std::size_t random_size(Random &random) {
    const std::uint64_t kind = random.below(10000);
    if (kind < 6500)
        return random.below(257);
    if (kind < 9000)
        return random.below(4096);
    if (kind < 9850)
        return random.below(40000);
    if (kind < 9980)
        return random.below(300000);
    if (kind < 9998)
        return random.below(5000000);
    return random.below(40000000);
}

void check_zero(const unsigned char *bytes, std::size_t size) {
    for (std::size_t i = 0; i<size; i += size> 8192 ? 61 : 1)
        CHECK(bytes[i] == 0);
}

void take_plain(Random &random, Block &block) {
    block.kind = Kind::Malloc;
    if (random.one_in(3)) {
        block.bytes = static_cast<unsigned char *>(calloc(1, block.size));
        CHECK(block.bytes != nullptr);
        check_zero(block.bytes, block.size);
    } else {
        block.bytes = static_cast<unsigned char *>(malloc(block.size));
    }
}

void take_aligned(Random &random, Block &block) {
    block.kind = Kind::Aligned;
    const unsigned most = random.one_in(50) ? 22 : 13;
    block.alignment = std::size_t{8} << random.below(most - 2);
    void *p = nullptr;
    switch (random.below(3)) {
    case 0:
        CHECK(posix_memalign(&p, block.alignment, block.size) == 0);
        break;
    case 1:
        block.size = (block.size + block.alignment - 1) & ~(block.alignment - 1);
        p = aligned_alloc(block.alignment, block.size);
        break;
    default:
        p = memalign(block.alignment, block.size);
    }
    block.bytes = static_cast<unsigned char *>(p);
}

void take_new(Random &random, Block &block) {
    switch (random.below(3)) {
    case 0:
        block.kind = Kind::New;
        block.bytes = static_cast<unsigned char *>(::operator new(block.size));
        break;
    case 1:
        block.kind = Kind::NewArray;
        block.bytes = static_cast<unsigned char *>(::operator new[](block.size, std::nothrow));
        break;
    default:
        block.kind = Kind::NewAligned;
        block.alignment = std::size_t{16} << random.below(9);
        block.bytes = static_cast<unsigned char *>(
            ::operator new(block.size, std::align_val_t(block.alignment)));
    }
}

/// The manual arenas from which some blocks of the extended interface come. An array, because
/// threads may use it while the program's objects are destroyed.
unsigned arenas[4];
std::size_t arena_count = 0;

/// By the extended interface, where the allocator has it.
void take_extended(Random &random, Block &block) {
    block.kind = Kind::Extended;
    int flags = 0;
    if (random.one_in(3)) {
        const unsigned shift = 3 + static_cast<unsigned>(random.below(10));
        block.alignment = std::size_t{1} << shift;
        flags |= static_cast<int>(shift);
    }
    const bool zero = random.one_in(3);
    if (zero)
        flags |= X_ZERO;
    if (arena_count != 0 && random.one_in(2))
        flags |= x_arena(arenas[random.below(arena_count)]) | X_TCACHE_NONE;
    else if (random.one_in(4))
        flags |= X_TCACHE_NONE;
    block.size += block.size == 0;
    block.bytes = static_cast<unsigned char *>(mallocx(block.size, flags));
    CHECK(block.bytes != nullptr);
    if (zero)
        check_zero(block.bytes, block.size);
}

Block take(Random &random, std::size_t size) {
    Block block;
    block.size = size;
    block.tag = static_cast<std::uint32_t>(random.next());
    const std::uint64_t kind = random.below(mallocx == nullptr ? 10 : 12);
    if (kind < 6)
        take_plain(random, block);
    else if (kind >= 10)
        take_extended(random, block);
    else if (kind < 8)
        take_aligned(random, block);
    else
        take_new(random, block);
    CHECK(block.bytes != nullptr);
    if (block.alignment != 0)
        CHECK((reinterpret_cast<std::uintptr_t>(block.bytes) & (block.alignment - 1)) == 0);
    CHECK(malloc_usable_size(block.bytes) >= block.size);
    fill(block);
    return block;
}

inline Block take(Random &random) { return take(random, random_size(random)); }

void give_back(Random &random, Block &block) {
    verify(block);
    switch (block.kind) {
    case Kind::Malloc:
        if (free_sized != nullptr && random.one_in(2))
            free_sized(block.bytes, block.size);
        else
            free(block.bytes);
        break;
    case Kind::Aligned:
        if (free_aligned_sized != nullptr && random.one_in(2))
            free_aligned_sized(block.bytes, block.alignment, block.size);
        else
            free(block.bytes);
        break;
    case Kind::New:
        if (random.one_in(2))
            ::operator delete(block.bytes, block.size);
        else
            ::operator delete(block.bytes);
        break;
    case Kind::NewArray:
        ::operator delete[](block.bytes);
        break;
    case Kind::NewAligned:
        ::operator delete(block.bytes, std::align_val_t(block.alignment));
        break;
    case Kind::Extended: {
        const int cache = random.one_in(2) ? X_TCACHE_NONE : 0;
        if (random.one_in(3))
            free(block.bytes);
        else if (random.one_in(2))
            dallocx(block.bytes, cache);
        else
            sdallocx(block.bytes, block.size, cache | x_align(block.alignment));
        break;
    }
    }
    block = Block{};
}

void resize(Block &block, std::size_t size) {
    const bool is_extended = block.kind == Kind::Extended;
    if (block.kind != Kind::Malloc && block.kind != Kind::Aligned && !is_extended)
        return;
    verify(block);
    void *bytes = is_extended ? rallocx(block.bytes, size + 1, x_align(block.alignment))
                              : realloc(block.bytes, size + 1);
    auto *moved = static_cast<unsigned char *>(bytes);
    CHECK(moved != nullptr);
    // Only the common part must be unchanged, and the pattern depends on the size.
    Block kept = block;
    kept.bytes = moved;
    const std::size_t common = size + 1 < block.size ? size + 1 : block.size;
    each_marked_byte(block, [&](std::size_t i, unsigned char value) {
        if (i < common)
            CHECK(kept.bytes[i] == value);
    });
    block.bytes = moved;
    block.size = size + 1;
    if (!is_extended) {
        block.alignment = 0;
        block.kind = Kind::Malloc;
    }
    fill(block);
}

inline void resize(Random &random, Block &block) {
    resize(block, random.one_in(3) ? block.size + random.below(64) : random_size(random));
}

} // namespace

#endif
