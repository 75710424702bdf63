//! Partly used chunks, filed so that runs are packed into as few chunks as possible.
//!
//! A chunk with free pages and allocated ones is in exactly one list, chosen by how full it is and
//! by the longest run of free pages in it. A request takes the fullest chunk that surely has the
//! room, and of those the one with the shortest sufficient run: full chunks fill up, sparse ones
//! drain until they are whole again and can serve anything, or go back to the system. The idea is
//! that of TCMalloc's huge page filler (Hunter and others, *Beyond malloc efficiency to fleet
//! efficiency*, OSDI 2021).

use crate::space::chunk::{CHUNK_PAGES, Chunk, NO_LIST};

/// Steps of fullness.
const LEVELS: usize = 16;
/// Steps of the longest free run: each length to 16, then four to each doubling up to 512.
const STEPS: usize = 36;

pub struct Filler {
    heads: [[Option<&'static Chunk>; STEPS]; LEVELS],
    /// For each level, the steps with a chunk.
    filled: [u64; LEVELS],
}

/// The last step whose length is at most `len`.
const fn step_within(len: usize) -> usize {
    if len <= 16 {
        return len - 1;
    }
    let doubling = (usize::BITS - 1 - len.leading_zeros()) as usize;
    let quarter = (len >> (doubling - 2)) & 3;
    let step = 15 + (doubling - 4) * 4 + quarter;
    if step < STEPS { step } else { STEPS - 1 }
}

/// The first step all of whose lengths are at least `len`.
const fn step_holding(len: usize) -> usize {
    if len <= 16 {
        len - 1
    } else {
        step_within(len - 1) + 1
    }
}

impl Filler {
    pub const fn new() -> Self {
        Filler {
            heads: [[None; STEPS]; LEVELS],
            filled: [0; LEVELS],
        }
    }

    /// Files the chunk where its `used` and `longest` say, taking it from where it was; a chunk that
    /// is full or vacant ends in no list.
    pub fn file(&mut self, chunk: &'static Chunk) {
        let used = chunk.used.get() as usize;
        let list = if used == 0 || used == CHUNK_PAGES {
            NO_LIST
        } else {
            let level = used * LEVELS / CHUNK_PAGES;
            (level * STEPS + step_within(chunk.longest.get() as usize)) as u16
        };
        if list != chunk.list.get() {
            self.unlink(chunk);
            self.link(chunk, list);
        }
    }

    fn link(&mut self, chunk: &'static Chunk, list: u16) {
        if list == NO_LIST {
            return;
        }
        let (level, step) = (list as usize / STEPS, list as usize % STEPS);
        let head = self.heads[level][step];
        chunk.list.set(list);
        chunk.prev.set(None);
        chunk.next.set(head);
        if let Some(head) = head {
            head.prev.set(Some(chunk));
        }
        self.heads[level][step] = Some(chunk);
        self.filled[level] |= 1 << step;
    }

    /// Takes the chunk from where it was: nobody finds it until it is filed again.
    pub fn unlink(&mut self, chunk: &'static Chunk) {
        let list = chunk.list.replace(NO_LIST);
        if list == NO_LIST {
            return;
        }
        let (level, step) = (list as usize / STEPS, list as usize % STEPS);
        let (prev, next) = (chunk.prev.take(), chunk.next.take());
        if let Some(next) = next {
            next.prev.set(prev);
        }
        match prev {
            Some(prev) => prev.next.set(next),
            None => {
                self.heads[level][step] = next;
                if next.is_none() {
                    self.filled[level] &= !(1 << step);
                }
            }
        }
    }

    /// A chunk with `pages` consecutive free pages, the fullest first.
    pub fn find(&self, pages: usize) -> Option<&'static Chunk> {
        let sure = step_holding(pages);
        let enough = if sure >= STEPS { 0 } else { u64::MAX << sure };
        for level in (0..LEVELS).rev() {
            let steps = self.filled[level] & enough;
            if steps != 0 {
                return self.heads[level][steps.trailing_zeros() as usize];
            }
            // Chunks of the step below may have the room too: look at a few.
            if sure > 0 && self.filled[level] >> (sure - 1) & 1 == 1 {
                let mut at = self.heads[level][sure - 1];
                for _ in 0..4 {
                    let Some(chunk) = at else { break };
                    if chunk.longest.get() as usize >= pages {
                        return Some(chunk);
                    }
                    at = chunk.next.get();
                }
            }
        }
        None
    }

    /// Every filed chunk, the sparsest first.
    pub fn sparsest_first(&self) -> impl Iterator<Item = &'static Chunk> + '_ {
        self.heads.iter().flatten().flat_map(|&head| {
            let mut at = head;
            core::iter::from_fn(move || {
                let chunk = at?;
                at = chunk.next.get();
                Some(chunk)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_bracket_every_length() {
        for len in 1..CHUNK_PAGES {
            assert!(step_within(len) < STEPS);
            // A chunk filed by its longest run is found by any request that surely fits it.
            for want in 1..=len {
                if step_holding(want) <= step_within(len) {
                    assert!(want <= len);
                }
            }
            assert!(
                step_within(len) + 1 >= step_holding(len),
                "{len} is looked for too far up"
            );
            assert!(len == 1 || step_within(len) >= step_within(len - 1));
        }
    }

    #[test]
    fn a_step_that_surely_holds_a_length_holds_no_shorter_one() {
        for want in 1..CHUNK_PAGES {
            for len in 1..want {
                assert!(
                    step_within(len) < step_holding(want),
                    "{len} filed for {want}"
                );
            }
        }
    }
}
