/* numa: threads on each NUMA node, each with a table of blocks, of which each step replaces a
 * random one and writes to all of it. In one step of eight, the thread exchanges the old block in a
 * common table for one that may come from another node, and frees that instead. An allocator that
 * hands such a block out again on the wrong node makes its thread write to memory that is far away.
 *
 *     nodes     groups of threads (0: one on each node, pinned to its processors)
 *     threads   in each group (2)   slots   live blocks in each table (4000)   common   (1024)
 *     count     replacements by each thread (400000)   min, max   log-uniform sizes (64, 16384)
 *
 * Besides the usual figures it prints what share of the pages of blocks that live at the end lies
 * on another node than the thread that holds them:
 *
 *     remote_percent 12.5 */
#include "distribution.h"
#include "memory.h"

#include <sched.h>
#include <sys/syscall.h>

enum { NODES, THREADS, COUNT, SLOTS, COMMON, MIN, MAX, PARAMS };
static Param params[PARAMS] = {
    {"nodes", 0, 0, 1024},
    {"threads", 2, 1, 4096},
    {"count", 400000, 1, UINT64_C(1) << 40},
    {"slots", 4000, 1, 1 << 20},
    {"common", 1024, 1, 1 << 20},
    {"min", 64, LEAST_BLOCK, UINT32_MAX / 2},
    {"max", 16384, LEAST_BLOCK, UINT32_MAX / 2},
};

enum { MOST_NODES = 1024 };

/* The processors of a node that this process may use; a group that is not pinned has number -1. */
typedef struct {
    int number;
    cpu_set_t processors;
} Node;

typedef struct {
    void *block;
    size_t size;
} Slot;

static Node *nodes;
static void **common;
static Slot *tables;
static int *at_end; /* the node on which each thread has ended */

/* Reads a list such as 0-3,8 into a set. */
static void read_list(FILE *file, cpu_set_t *set) {
    unsigned first, last;
    CPU_ZERO(set);
    while (fscanf(file, "%u", &first) == 1) {
        int next = fgetc(file);
        last = first;
        if (next == '-' && fscanf(file, "%u", &last) == 1)
            next = fgetc(file);
        for (; first <= last && first < CPU_SETSIZE; first++)
            CPU_SET(first, set);
        if (next != ',')
            return;
    }
}

/* The nodes with processors for this process. Files are read by stdio, which allocates a little;
 * this is before the clock runs. */
static uint64_t find_nodes(void) {
    cpu_set_t allowed;
    uint64_t count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        fail("sched_getaffinity", strerror(errno));
    for (int number = 0; number < MOST_NODES; number++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", number);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        Node *node = &nodes[count];
        read_list(file, &node->processors);
        fclose(file);
        CPU_AND(&node->processors, &node->processors, &allowed);
        node->number = number;
        count += CPU_COUNT(&node->processors) > 0;
    }
    return count;
}

static int current_node(void) {
    unsigned processor, node;
    return syscall(SYS_getcpu, &processor, &node, NULL) == 0 ? (int)node : -1;
}

static void fill(Slot *slot, size_t size) {
    slot->size = size;
    slot->block = make(size);
    memset((char *)slot->block + sizeof(uint64_t), 'a', size - sizeof(uint64_t));
}

static void work(uint64_t thread) {
    const uint64_t count = params[COUNT].value, slots = params[SLOTS].value;
    const uint64_t shared = params[COMMON].value, low = params[MIN].value, high = params[MAX].value;
    const Node *node = &nodes[thread / params[THREADS].value];
    if (node->number >= 0 && sched_setaffinity(0, sizeof node->processors, &node->processors))
        fail("sched_setaffinity", strerror(errno));
    uint64_t state = random_seed(thread);
    Slot *table = tables + thread * slots;
    for (uint64_t i = 0; i < count; i++) {
        Slot *slot = &table[random_size(&state, 0, slots - 1)];
        void *old = slot->block;
        if (old && i % 8 == 0)
            old = __atomic_exchange_n(&common[random_size(&state, 0, shared - 1)], old,
                                      __ATOMIC_ACQ_REL);
        if (old)
            drop(old);
        fill(slot, random_log(&state, low, high));
    }
    at_end[thread] = current_node();
}

/* Counts the pages of a thread's blocks, and those of them that lie on another node. */
static void count_pages(uint64_t thread, uint64_t *all, uint64_t *remote) {
    enum { BATCH = 512 };
    void *pages[BATCH];
    int status[BATCH];
    int filled = 0;
    const Slot *slot = tables + thread * params[SLOTS].value, *end = slot + params[SLOTS].value;
    for (uintptr_t at = 0; slot < end;) {
        const uintptr_t first = (uintptr_t)slot->block & -(uintptr_t)PAGE_BYTES;
        at = at ? at + PAGE_BYTES : first;
        if (slot->block && at < (uintptr_t)slot->block + slot->size)
            pages[filled++] = (void *)at;
        else
            at = 0, slot++;
        if (filled < BATCH && slot < end)
            continue;
        if (syscall(SYS_move_pages, 0, filled, pages, NULL, status, 0) != 0)
            return;
        for (int i = 0; i < filled; i++) {
            *all += status[i] >= 0;
            *remote += status[i] >= 0 && status[i] != at_end[thread];
        }
        filled = 0;
    }
}

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    check_range(params[MIN].value, params[MAX].value);
    const size_t of_nodes = MOST_NODES * sizeof(Node);
    nodes = (Node *)map_memory(of_nodes);
    uint64_t groups = params[NODES].value;
    for (uint64_t i = 0; i < groups; i++)
        nodes[i].number = -1;
    if (groups == 0 && (groups = find_nodes()) == 0)
        fail("/sys/devices/system/node", "there is no node with processors");
    const uint64_t threads = groups * params[THREADS].value, shared = params[COMMON].value;
    const uint64_t slots = threads * params[SLOTS].value;
    const size_t bytes = slots * sizeof(Slot) + shared * sizeof(void *) + threads * sizeof(int);
    tables = (Slot *)map_memory(bytes);
    common = (void **)(tables + slots);
    at_end = (int *)(common + shared);
    const double seconds = run_threads(threads, 1, work);
    uint64_t all = 0, remote = 0;
    for (uint64_t thread = 0; thread < threads; thread++)
        count_pages(thread, &all, &remote);
    for (uint64_t i = 0; i < slots; i++)
        if (tables[i].block)
            drop(tables[i].block);
    for (uint64_t i = 0; i < shared; i++)
        if (common[i])
            drop(common[i]);
    note_end();
    unmap_memory(tables, bytes);
    unmap_memory(nodes, of_nodes);
    if (all)
        printf("remote_percent %.2f\n", 100.0 * (double)remote / (double)all);
    print_all(seconds, 2 * threads * params[COUNT].value);
    return 0;
}
