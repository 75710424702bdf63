// containers: the standard library's containers, in turn. Each is filled, half emptied at random
// places, filled again, summed up and destroyed: nodes of trees, hash tables and lists, growing
// vectors and the blocks of a deque, as in C++ programs. The sums are verified.
//
//     threads   each with its own containers (1)
//     count     maximum number of elements in each container (200000)
//     rounds    through all of them (4)
//
// `operations` counts inserted and removed elements, because the number of allocations depends on
// the implementation.
#include "memory.h"

#include <deque>
#include <list>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

enum { THREADS, COUNT, ROUNDS, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 1024},
    {"count", 200000, 16, INT32_MAX},
    {"rounds", 4, 1, 1000000},
};

static void verify(uint64_t found, uint64_t expected) {
    if (found != expected)
        fail("a container has lost its content", "its sum is not that of the inserted elements");
}

// A permutation of [0, count): multiples of an odd number modulo the next power of two.
template <class Visit> static void in_random_order(uint64_t count, Visit visit) {
    uint64_t power = 1;
    while (power < count)
        power *= 2;
    for (uint64_t i = 0; i < power; ++i) {
        const uint64_t number = (i * UINT64_C(0x9E3779B97F4A7C15) + 12345) & (power - 1);
        if (number < count)
            visit(number);
    }
}

static uint64_t sum_below(uint64_t count) { return count * (count - 1) / 2; }

template <class Map> static void maps(uint64_t count) {
    Map map;
    in_random_order(count, [&](uint64_t key) { map.emplace(key, key); });
    in_random_order(count, [&](uint64_t key) {
        if (key % 2)
            map.erase(key);
    });
    in_random_order(count, [&](uint64_t key) { map.emplace(key, key); });
    uint64_t sum = 0;
    for (const auto &entry : map)
        sum += entry.second;
    verify(sum, sum_below(count));
}

static void sets(uint64_t count) {
    std::set<uint64_t> set;
    in_random_order(count, [&](uint64_t key) { set.insert(key); });
    // The smallest is removed and a larger one inserted, as in a queue of timers.
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; ++i) {
        sum += *set.begin();
        set.erase(set.begin());
        set.insert(count + i);
    }
    verify(sum, sum_below(count));
}

static void lists(uint64_t count) {
    std::list<uint64_t> list;
    for (uint64_t i = 0; i < count; ++i)
        if (i % 2)
            list.push_back(i);
        else
            list.push_front(i);
    list.remove_if([](uint64_t number) { return number % 4 == 0; });
    for (uint64_t i = 0; i < count; i += 4)
        list.push_back(i);
    uint64_t sum = 0;
    for (uint64_t number : list)
        sum += number;
    verify(sum, sum_below(count));
}

static void deques(uint64_t count) {
    std::deque<uint64_t> deque;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count * 4; ++i) {
        deque.push_back(i);
        if (deque.size() > count / 2) {
            sum += deque.front();
            deque.pop_front();
        }
    }
    for (uint64_t number : deque)
        sum += number;
    verify(sum, sum_below(count * 4));
}

// Many vectors grow at once, with lengths from one to hundreds.
static void vectors(uint64_t count) {
    std::vector<std::vector<uint64_t>> rows(count / 16);
    uint64_t state = random_seed(count), sum = 0, expected = 0;
    for (uint64_t i = 0; i < count * 2; ++i) {
        const uint64_t draw = random_size(&state, 0, rows.size() - 1);
        rows[random_size(&state, 0, draw)].push_back(i); // the first rows become the longest
        expected += i;
    }
    for (const auto &row : rows)
        for (uint64_t number : row)
            sum += number;
    verify(sum, expected);
}

static void work(uint64_t) {
    const uint64_t count = params[COUNT].value;
    for (uint64_t round = 0; round < params[ROUNDS].value; ++round) {
        maps<std::map<uint64_t, uint64_t>>(count);
        maps<std::unordered_map<uint64_t, uint64_t>>(count);
        sets(count);
        lists(count);
        deques(count);
        vectors(count);
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    const uint64_t count = params[COUNT].value;
    // Insertions and removals per `count`: maps 3 each, set 4, list 2.5, deque 8, vectors 4.
    return run_all(params[THREADS].value, work, params[ROUNDS].value * count * 49 / 2);
}
