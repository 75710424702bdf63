//! Memory behind pages in use that their owner has no need of for now.
//!
//! A slab whose blocks are few keeps all its pages from becoming free, most of them without a block
//! on them. Their owner (`arena::subrelease`) has the memory behind them taken, as purging does
//! behind free pages (`purge`), by the same calls, one thread at a time in each page heap: they
//! stay in use, and are zero when they are touched again.

use super::advice::{self, Range};
use super::{PageHeap, huge_pages};
use crate::space::chunk::Chunk;

impl PageHeap {
    /// Whether all of the chunk may be one huge page, which breaks when a part of it goes.
    pub fn is_whole(&self, chunk: &Chunk) -> bool {
        let _state = self.state.lock();
        chunk.is_whole()
    }

    /// Whether hooks of the program's provide its memory, or have provided some.
    pub fn is_lending(&self) -> bool {
        self.lending.is_on()
    }

    /// Takes the memory behind pages in use of a chunk, at most [`advice::MOST`] ranges, which
    /// nobody touches meanwhile. Tells whether the system took any; not when another thread returns
    /// memory, unless it is to wait.
    pub fn take_behind(&self, chunk: &'static Chunk, ranges: &[Range], wait: bool) -> bool {
        let Some(_hold) = self.hold(wait) else {
            return false;
        };
        let mut backings = [None; advice::MOST];
        advice::take(ranges, false, &mut backings);
        if backings.iter().all(Option::is_none) {
            return false;
        }
        let breaks = {
            let _state = self.state.lock();
            chunk.broken.set(true);
            chunk.huge.get() && huge_pages::may_stay_broken()
        };
        // The chunk does not become vacant meanwhile: pages of it are in use.
        if breaks {
            huge_pages::keep_broken(chunk);
            let _state = self.state.lock();
            huge_pages::kept_broken(chunk);
        }
        true
    }
}
