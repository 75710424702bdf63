// Two objects own one block, because the class has a destructor and no copy constructor.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

class Buffer {
    char *data;

  public:
    explicit Buffer(const char *text) : data(new char[std::strlen(text) + 1]) {
        std::strcpy(data, text);
    }
    __attribute__((noinline)) ~Buffer() {
        delete[] data; // BUG
    }
    std::size_t length() const { return std::strlen(data); }
};

static std::size_t length_of(Buffer buffer) { return buffer.length(); }

int main() {
    Buffer name("Somateria mollissima");
    std::vector<std::string> others(20, std::string(100, 'x'));
    std::printf("%zu\n", length_of(name) + others.size());
    return 0;
}
