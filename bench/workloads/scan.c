/* scan: a long list that is built once, walked many times and never freed by the program, like the
 * data of parsers and compilers that leave the clean-up to the kernel. The time depends on how
 * densely and how well in order an allocator places blocks, and on the size of their pages. A block
 * of another size follows every eighth node, as in real programs.
 *
 *     threads   each with its own list (1)           count   nodes of each list (1000000)
 *     walks     along the whole list (50)            min, max   uniform sizes of the nodes (16, 64)
 *
 * The clock covers building and walking. The list is live in the end state, and is freed off the
 * clock. */
#include "memory.h"

enum { THREADS, COUNT, WALKS, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"threads", 1, 1, 64},
    {"count", 1000000, 1, 1 << 30},
    {"walks", 50, 1, 1000000},
    {"min", 16, sizeof(uint64_t) * 2, UINT32_MAX - 1},
    {"max", 64, sizeof(uint64_t) * 2, UINT32_MAX - 1},
};

typedef struct Node {
    struct Node *next;
    uint64_t number;
} Node;

static Node *lists[64], *others[64];

static Node *new_node(Node *next, uint64_t number, size_t size) {
    Node *node = (Node *)must(malloc(size));
    node->next = next;
    node->number = number;
    return node;
}

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, low = params[MIN].value, high = params[MAX].value;
    uint64_t state = random_seed(thread);
    Node **last = &lists[thread];
    for (uint64_t i = 0; i < count; i++) {
        *last = new_node(NULL, i, random_size(&state, low, high));
        last = &(*last)->next;
        if (i % 8 == 0)
            others[thread] = new_node(others[thread], i, high * 4);
    }
    for (uint64_t walk = 0; walk < params[WALKS].value; walk++) {
        uint64_t sum = 0;
        for (volatile Node *node = lists[thread]; node; node = node->next)
            sum += node->number;
        if (sum != count * (count - 1) / 2)
            fail("the list has lost its content", "the sum of its nodes' numbers is wrong");
    }
}

static void free_list(Node *list) {
    while (list) {
        Node *next = list->next;
        free(list);
        list = next;
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const uint64_t threads = params[THREADS].value, count = params[COUNT].value;
    const double seconds = run_threads(threads, 1, work);
    note_end();
    for (uint64_t i = 0; i < threads; i++) {
        free_list(lists[i]);
        free_list(others[i]);
    }
    print_all(seconds, threads * (count + (count + 7) / 8));
    return 0;
}
