//! Which slot a block of a plan gets.
//!
//! A thread uses the slots again that it has freed itself: nothing has to order that. The slots of
//! blocks that came from another thread would gather at the thread that frees them, and the thread
//! that allocates would take new ones for ever. So beyond a few they are for every thread, and a
//! thread that takes one waits until it is empty. That also keeps the thread that allocates from
//! running ahead of the one that frees: it takes the slot that was freed last, but for a few.
//!
//! The blocks of a slot are numbered. A thread waits for one block, or for its end, by its number:
//! the threads of a replay are not at the same point of the recorded time.

use std::collections::VecDeque;

use crate::life::TOLERANCE_UNITS;

/// The slots of blocks from other threads that a thread keeps.
const KEPT_SLOTS_MAX: usize = 16;
/// A slot is for all threads when so many others were freed after it: this many, or a share of all
/// blocks that live. The replay may run ahead by as many blocks.
const BLOCKS_BEHIND_MIN: u64 = 16;
const LIVE_PER_BEHIND: u64 = 64;

/// Numbers go round: no thread of a replay is so many blocks of one slot ahead of another.
const BLOCK_NUMBER_MAX: u16 = 0x7fff;

/// Where a block lies.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub slot: u32,
    /// The number of the block in its slot: 15 bits.
    pub number: u16,
    /// Another thread has freed it, and the one that takes it waits until it is empty.
    pub waits: bool,
}

#[derive(Debug, Default)]
pub struct Slots {
    /// The number of the last block of each slot. The first is 1.
    numbers: Vec<u16>,
    /// Slots that were freed lately: the slot, how many were freed until then, and the time.
    young: VecDeque<(u32, u64, u64)>,
    /// Slots for all threads, the one that was freed last at the end.
    aged: Vec<u32>,
    freed: u64,
    live: u64,
}

impl Slots {
    /// All slots so far.
    pub fn count(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// A slot for a block that begins at `when`; none if there would be more than `most`. `own` are
    /// those that the thread has freed.
    pub fn take(&mut self, own: &mut Vec<u32>, when: u64, most: u32) -> Option<Place> {
        let mut waits = false;
        let slot = match own.pop() {
            Some(slot) => slot,
            None => {
                self.age(when);
                match self.aged.pop() {
                    Some(slot) => {
                        waits = true;
                        slot
                    }
                    None if self.count() >= most => return None,
                    None => {
                        self.numbers.push(0);
                        self.count() - 1
                    }
                }
            }
        };
        self.live += 1;
        let number = &mut self.numbers[slot as usize];
        *number = (*number + 1) & BLOCK_NUMBER_MAX;
        Some(Place {
            slot,
            number: *number,
            waits,
        })
    }

    /// The block of a slot ends at `when`; `elsewhere` if another thread has allocated it.
    pub fn give_back(&mut self, slot: u32, own: &mut Vec<u32>, elsewhere: bool, when: u64) {
        self.live -= 1;
        if !elsewhere || own.len() < KEPT_SLOTS_MAX {
            own.push(slot);
        } else {
            self.freed += 1;
            self.young.push_back((slot, self.freed, when));
        }
    }

    /// The slots of a process that this one forks, and those of them that are empty but for `own`,
    /// which the caller knows: all threads have come to the fork, so none need wait for them.
    pub fn forked(&self) -> (Slots, Vec<u32>) {
        let young = self.young.iter().map(|(slot, _, _)| *slot);
        let empty = young.chain(self.aged.iter().copied()).collect();
        let slots = Slots {
            numbers: self.numbers.clone(),
            live: self.live,
            ..Slots::default()
        };
        (slots, empty)
    }

    /// Slots that are old enough are for all threads. Events that are the wrong way round may move
    /// by the tolerance: a slot that waited for an end within it might wait for itself.
    fn age(&mut self, when: u64) {
        let behind = (self.live / LIVE_PER_BEHIND).max(BLOCKS_BEHIND_MIN);
        while let Some(&(slot, freed, then)) = self.young.front() {
            if self.freed - freed < behind || when.saturating_sub(then) <= 2 * TOLERANCE_UNITS {
                break;
            }
            self.young.pop_front();
            self.aged.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_pipeline_go_round_and_number_their_blocks() {
        let mut slots = Slots::default();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let mut queue = VecDeque::new();
        let mut last = std::collections::HashMap::new();
        let mut waited = 0;
        for when in (0..100_000).map(|index| index * 10 * TOLERANCE_UNITS) {
            let place = slots.take(&mut one, when, u32::MAX).unwrap();
            let before = last.insert(place.slot, place.number).unwrap_or(0);
            assert_eq!(place.number, before + 1);
            waited += u32::from(place.waits);
            queue.push_back(place.slot);
            if queue.len() == 1000 {
                let slot = queue.pop_front().unwrap();
                slots.give_back(slot, &mut other, true, when);
            }
        }
        assert!(slots.count() < 1100, "{}", slots.count());
        assert!(waited > 98_000);
    }

    #[test]
    fn a_thread_s_own_blocks_wait_for_nobody() {
        let mut slots = Slots::default();
        let mut own = Vec::new();
        for when in 0..1000 {
            let place = slots.take(&mut own, when, 1).unwrap();
            assert!(!place.waits && place.slot == 0 && u64::from(place.number) == when + 1);
            assert!(slots.take(&mut Vec::new(), when, 1).is_none(), "no room");
            slots.give_back(0, &mut own, false, when);
        }
    }
}
