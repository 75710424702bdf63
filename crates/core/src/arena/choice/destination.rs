//! Which arena's transfer cache takes a batch of blocks that a thread cache flushes.
//!
//! A thread that frees what another allocates is the end of a pipe: no thread needs these blocks
//! from the transfer cache of its own arena, which overflows and returns them to their slabs one by
//! one. With several arenas, a batch of another arena's blocks goes to that arena's transfer cache
//! instead, where the allocating thread finds them, as if both shared an arena. The first and the
//! last block decide for the batch: a stack mostly holds one pipe's blocks, and a block in any
//! transfer cache is never wrong, only less useful.

use crate::arena::table::{existing, several};
use crate::arena::{Arena, Slab};
use crate::class::Class;
use crate::sys::atomic::Ordering;

impl Arena {
    /// The arena whose transfer cache should take blocks flushed here.
    #[inline]
    pub(in crate::arena) fn home_of(&self, class: Class, blocks: &[usize]) -> &Arena {
        if class.is_slab() && several() {
            self.home_among_several(class, blocks)
        } else {
            self
        }
    }

    #[cold]
    #[inline(never)]
    fn home_among_several(&self, class: Class, blocks: &[usize]) -> &Arena {
        let [first, .., last] = blocks else {
            return self;
        };
        let owner = Slab::of(*first, class).arena();
        if owner == self.index || owner != Slab::of(*last, class).arena() {
            return self;
        }
        // A manual arena only takes its own blocks, and its blocks may be discarded. And in
        // an arena without threads, nothing would use them.
        let asks = |a: &&Arena| {
            !a.is_manual() && !self.is_manual() && a.threads.load(Ordering::Relaxed) > 0
        };
        existing(owner as usize).filter(asks).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::table::get;
    use crate::arena::{any, drain};
    use crate::testing::alone;

    #[test]
    fn blocks_that_another_arenas_thread_frees_wait_in_the_transfer_cache_where_they_are_asked_for()
    {
        crate::testing::own_process!();
        let _alone = alone();
        drain(crate::arena::Drain::All);
        let class = Class::of(96);
        let (theirs, ours) = (
            any().expect("there is memory"),
            get(1).expect("there is memory"),
        );
        assert_ne!(theirs.index(), ours.index());
        let mut blocks = [0; 16];
        assert_eq!(theirs.fill(class, &mut blocks), 16);
        let mut mixed = [0; 16];
        assert_eq!(theirs.fill(class, &mut mixed[8..]), 8);
        assert_eq!(ours.fill(class, &mut mixed[..8]), 8);
        let stored = || (theirs.counts(class).1, ours.counts(class).1);
        theirs.enter();
        ours.flush(class, &mut blocks[..8].to_owned());
        assert_eq!(stored(), (8, 0));
        // Blocks of two arenas, or its own, stay here.
        ours.flush(class, &mut mixed);
        assert_eq!(stored(), (8, 16));
        // All threads have left the other arena.
        let there = theirs.threads.swap(0, Ordering::Relaxed);
        ours.flush(class, &mut blocks[8..].to_owned());
        theirs.threads.store(there, Ordering::Relaxed);
        theirs.leave();
        assert_eq!(stored(), (8, 16 + 8));
        drain(crate::arena::Drain::All);
        assert_eq!(stored(), (0, 0));
    }
}
