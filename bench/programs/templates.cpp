// Compiled, never run: templates that instantiate templates, containers of many types, lambdas and
// overloads, so that the compiler allocates hundreds of thousands of types, declarations and pieces
// of code. WIDTH is the number of families of types; it may be 0.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#ifndef WIDTH
#define WIDTH 8
#endif

template <int N> struct Key {
    int value;
    friend bool operator<(const Key &a, const Key &b) { return a.value < b.value; }
};

// A recursive type list, and computations with it.
template <class... T> struct List {};

template <class A, class B> struct Join;
template <class... A, class... B> struct Join<List<A...>, List<B...>> {
    using type = List<A..., B...>;
};

template <int From, int To> struct Keys {
    static constexpr int middle = (From + To) / 2;
    using type =
        typename Join<typename Keys<From, middle>::type, typename Keys<middle, To>::type>::type;
};
template <int From> struct Keys<From, From + 1> { using type = List<Key<From>>; };

template <template <class> class F, class L> struct Map;
template <template <class> class F, class... T> struct Map<F, List<T...>> {
    using type = List<typename F<T>::type...>;
};

template <class T> struct Wrap { using type = std::tuple<T, std::unique_ptr<T>>; };

template <class L> struct ToVariant;
template <class... T> struct ToVariant<List<T...>> { using type = std::variant<T...>; };

using Numbers = Keys<0, 24 * WIDTH + 1>::type;
using Wrapped = Map<Wrap, Numbers>::type;

template <class T> struct Measure;
template <class... T> struct Measure<List<T...>> {
    static constexpr std::size_t bytes = (sizeof(T) + ... + 0);
};

std::size_t total() { return Measure<Wrapped>::bytes; }

// Code: containers of each family, filled, sorted and visited.
template <int N> long family(const std::vector<int> &input) {
    using Variant = typename ToVariant<typename Keys<N * 4, N * 4 + 4>::type>::type;
    std::map<Key<N>, std::vector<std::pair<std::string, Variant>>> groups;
    for (int number : input) {
        auto &group = groups[Key<N>{number % 7}];
        group.emplace_back(std::to_string(number), Key<N * 4 + 1>{number});
    }
    long sum = 0;
    for (auto &[key, group] : groups) {
        std::sort(group.begin(), group.end(),
                  [](const auto &a, const auto &b) { return a.first < b.first; });
        for (const auto &entry : group)
            sum += std::visit([&key](const auto &held) { return held.value + key.value; },
                              entry.second);
    }
    std::function<long(long)> steps[] = {
        [sum](long x) { return x + sum; },
        [&groups](long x) { return x * static_cast<long>(groups.size()); },
    };
    for (const auto &step : steps)
        sum = step(sum);
    return sum;
}

template <int... N> long all(const std::vector<int> &input, std::integer_sequence<int, N...>) {
    return (family<N>(input) + ... + 0);
}

long run(const std::vector<int> &input) {
    return all(input, std::make_integer_sequence<int, WIDTH>());
}
