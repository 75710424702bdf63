// Blocks of several sizes from several functions, for the tests of heap profiles. Some are freed, a
// thread has its own, and one function asks for sizes that differ much.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noipa))

static void *kept[60000];
static int count;

static void keep(void *block) {
    memset(block, 1, 8);
    kept[count++] = block;
}

APART void small(int n) {
    for (int i = 0; i < n; i++)
        keep(malloc(72));
}

APART void mixed(int n) {
    for (int i = 0; i < n; i++)
        keep(malloc(i % 10 == 0 ? 9000 : 40));
}

APART void large(int n) {
    for (int i = 0; i < n; i++)
        keep(calloc(1, 70000));
}

APART void brief(int n) {
    for (int i = 0; i < n; i++) {
        void *block = malloc(500);
        memset(block, 1, 8);
        free(block);
    }
}

APART void part(void) {
    small(20000);
    mixed(5000);
    __asm__ volatile("");
}

APART void *other(void *unused) {
    small(4000);
    large(30);
    __asm__ volatile("");
    return unused;
}

int main(void) {
    part();
    large(40);
    brief(20000);
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
