// A plug-in that is loaded with RTLD_DEEPBIND: see deepbind.c.
#include <new>
#include <stdexcept>
#include <string>
#include <vector>
#include "deepbind-ways.h"

static void *make_buffer(size_t size) { return ::operator new(size); }
static void take_buffer(void *buffer) { ::operator delete(buffer); }

static size_t usable(char *block) { return malloc_usable_size(block); }

static int own() {
    std::vector<std::string> lines;
    try {
        for (int i = 0; i < 1000; i++)
            lines.push_back(std::string(static_cast<size_t>(i), 'y'));
        throw std::runtime_error(lines.back());
    } catch (const std::runtime_error &error) {
        return strlen(error.what()) == 999 ? 0 : 1;
    }
}

extern "C" __attribute__((visibility("default"))) const struct module module = {
    make, take, grow, usable, make_buffer, take_buffer, own,
};
