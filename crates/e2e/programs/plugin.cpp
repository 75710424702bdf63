// A plug-in that `lifecycle` loads and unloads. Blocks pass between it and the program in both
// directions; its static objects allocate when it is loaded and free when it is unloaded.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {
struct Registry {
    std::map<std::string, std::string> entries;
    Registry() {
        for (int i = 0; i < 500; i++)
            entries[std::to_string(i)] = std::string(i, 'p');
    }
};
Registry registry;
thread_local std::string scratch = "a thread's own string, long enough to be allocated";
} // namespace

extern "C" char *plugin_make(int n) {
    scratch += registry.entries[std::to_string(n)];
    char *text = static_cast<char *>(malloc(scratch.size() + 1));
    std::strcpy(text, scratch.c_str());
    return text;
}

extern "C" void plugin_drop(char *text) { free(text); }
