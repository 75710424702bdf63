// Every operator of C++, and an allocation that fails: the exception passes through the probe.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

struct alignas(128) Wide {
    char bytes[300];
};

int main() {
    std::map<int, std::string> map;
    for (int i = 0; i < 20000; i++)
        map[i * 7919 % 20011] = std::string(i % 90, 'x');
    std::vector<Wide> wide(100);
    Wide *one = new Wide;
    delete one;
    delete[] new (std::nothrow) char[1000];
    volatile size_t much = size_t(-1) / 4;
    int caught = 0;
    for (int i = 0; i < 10; i++) {
        try {
            char *block = new char[much];
            std::printf("unexpected %p\n", (void *)block);
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    std::printf("%zu %d %d\n", map.size(), caught, new (std::nothrow) char[much] == nullptr);
    return (size_t(&wide[1]) % 128) != 0;
}
