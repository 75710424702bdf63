// strings: text processing as in C++ programs. A text is split into words, which are counted in a
// hash table of strings, sorted, and joined with separators by appending; lines of the result are
// cut and replaced. Words have 1 to 40 letters, so about half of them fit into std::string itself
// and the others are small allocations. The joined text grows by doubling.
//
//     threads   each with its own text (1)
//     words     in the text (100000)
//     rounds    through all of it (12)
//
// `operations` counts the words handled in each step, because the number of allocations depends on
// the implementation. The length of the joined text and the sum of the counts are verified.
#include "memory.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

enum { THREADS, WORDS, ROUNDS, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 1024},
    {"words", 100000, 10, 1 << 28},
    {"rounds", 12, 1, 1000000},
};

// Words from a vocabulary of a tenth as many, the first ones most frequent, as in natural language.
static std::string new_text(uint64_t seed, uint64_t words) {
    std::string text;
    uint64_t state = random_seed(seed);
    for (uint64_t i = 0; i < words; ++i) {
        const uint64_t number = random_size(&state, 0, random_size(&state, 0, words / 10 - 1));
        uint64_t letters = random_seed(number);
        for (size_t length = random_size(&letters, 1, 40); length > 0; --length)
            text += static_cast<char>('a' + random_size(&letters, 0, 25));
        text += ' ';
    }
    return text;
}

static std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> words;
    for (size_t from = 0, to; (to = text.find(' ', from)) != std::string::npos; from = to + 1)
        words.push_back(text.substr(from, to - from));
    return words;
}

static std::string joined(const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words)
        text += word + ", ";
    return text;
}

static uint64_t counted(const std::vector<std::string> &words) {
    std::unordered_map<std::string, uint64_t> counts;
    for (const std::string &word : words)
        ++counts["word:" + word];
    uint64_t sum = 0;
    for (const auto &entry : counts)
        sum += entry.second;
    return sum;
}

// Keeps a window of lines, each made from the one that it replaces, and returns their length.
static uint64_t replaced(const std::vector<std::string> &words) {
    std::vector<std::string> lines(1000);
    uint64_t length = 0;
    for (size_t i = 0; i < words.size(); ++i) {
        std::string &line = lines[i % lines.size()];
        line = line.size() > 300 ? words[i] : line + "\t" + words[i];
        length += line.size();
    }
    return length;
}

static void work(uint64_t thread) {
    const std::string text = new_text(thread, params[WORDS].value);
    for (uint64_t round = 0; round < params[ROUNDS].value; ++round) {
        std::vector<std::string> words = split(text);
        if (counted(words) != params[WORDS].value)
            fail("words were lost", "the counts do not add up to the number of words");
        std::sort(words.begin(), words.end());
        // Each separator has one letter more than the blank that it replaces.
        if (joined(words).size() != text.size() + words.size())
            fail("text was lost", "the joined words and the text differ in length");
        if (replaced(words) < words.size())
            fail("lines were lost", "they are shorter than the words in them");
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    return run_all(params[THREADS].value, work, params[ROUNDS].value * params[WORDS].value * 4);
}
