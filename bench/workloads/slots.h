/* The slots of a replay: where the address of each block lies from its allocation to its free, and
 * how a thread waits for a block of another. */
#ifndef MALLARD_SLOTS_H
#define MALLARD_SLOTS_H

#include "family.h"

/* What a slot holds: the address of a block and, from bit 48, its number in the slot. The number
 * stays when the block has left. */
typedef struct {
    _Atomic uint64_t held;
    uint64_t size; /* of the block; who takes the block may read it */
} Slot;

static Slot *slots;
static _Atomic uint32_t waiting_for_slots;

/* The address after a request that failed. */
#define NO_BLOCK UINT64_C(1)
enum { NUMBER_AT = 48, MOST_NUMBER = 0x7fff };
#define ADDRESS_MASK ((UINT64_C(1) << NUMBER_AT) - 1)
enum { SPINS = 200 };
static const struct timespec SHORT = {0, 200000};

/* What a thread waits for: that a block of this number has come to a slot, or has left it. */
typedef enum { HERE, GONE } Wanted;

static inline int is(uint64_t held, uint64_t number, Wanted wanted) {
    const int here = (held & ADDRESS_MASK) != 0;
    return held >> NUMBER_AT == number && here == (wanted == HERE);
}

/* The half of a slot that a waiting thread sleeps on changes whenever a block comes or goes. */
static _Atomic uint32_t *futex_of(uint64_t slot) { return (_Atomic uint32_t *)&slots[slot].held; }

/* Tells the processor that the thread spins. */
static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

__attribute__((noinline, cold)) static uint64_t await_slowly(uint64_t slot, uint64_t number,
                                                             Wanted wanted) {
    uint64_t held;
    for (int i = 0; i < SPINS; i++) {
        if (is(held = atomic_load_explicit(&slots[slot].held, memory_order_acquire), number,
               wanted))
            return held;
        pause_briefly();
    }
    atomic_fetch_add(&waiting_for_slots, 1);
    while (!is(held = atomic_load(&slots[slot].held), number, wanted))
        futex(futex_of(slot), FUTEX_WAIT, (uint32_t)held, &SHORT);
    atomic_fetch_sub(&waiting_for_slots, 1);
    return held;
}

static inline uint64_t await(uint64_t slot, uint64_t number, Wanted wanted) {
    const uint64_t held = atomic_load_explicit(&slots[slot].held, memory_order_acquire);
    return __builtin_expect(is(held, number, wanted), 1) ? held
                                                         : await_slowly(slot, number, wanted);
}

/* Waits until the block before this one has left the slot. */
static inline void await_room(uint64_t slot, uint64_t number) {
    await(slot, (number - 1) & MOST_NUMBER, GONE);
}

/* Other threads may wait for what has just become of a slot. */
static inline void tell(uint64_t slot) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&waiting_for_slots, memory_order_relaxed))
        futex(futex_of(slot), FUTEX_WAKE, INT32_MAX, NULL);
}

static inline void *block_of(uint64_t held) {
    const uint64_t address = held & ADDRESS_MASK;
    return address == NO_BLOCK ? NULL : (void *)(uintptr_t)address;
}

/* Takes the block out of a slot, and tells its size. */
static inline void *take(uint64_t slot, int from_another, uint64_t number, uint64_t *size) {
    const uint64_t held = from_another
                              ? await(slot, number, HERE)
                              : atomic_load_explicit(&slots[slot].held, memory_order_relaxed);
    *size = slots[slot].size;
    atomic_store_explicit(&slots[slot].held, number << NUMBER_AT, memory_order_release);
    if (from_another)
        tell(slot);
    return block_of(held);
}

static inline void put(uint64_t slot, void *block, uint64_t size, int for_another,
                       uint64_t number) {
    const uint64_t address =
        __builtin_expect(block != NULL, 1) ? (uint64_t)(uintptr_t)block : NO_BLOCK;
    slots[slot].size = size;
    atomic_store_explicit(&slots[slot].held, address | number << NUMBER_AT, memory_order_release);
    if (for_another)
        tell(slot);
}

#endif
