// Frees an array by the operator for a single object.
#include <cstdio>

struct Sample {
    int value;
};

__attribute__((noinline)) static Sample *make(int count) { return new Sample[count]; }

__attribute__((noinline)) static void drop(Sample *samples) {
    delete samples; // BUG
}

int main(int count, char **) {
    Sample *samples = make(9 + count);
    samples[0].value = count;
    std::printf("%d\n", samples[0].value);
    drop(samples);
    return 0;
}
