//! Chunks that were begun a moment ago, each kept for the thread that began it.
//!
//! Worth: time of programs whose threads grow one heap. `idle` 73 → 68 ms, `replace-fleet-4` 106 →
//! 103 ms; with 64 requests by others instead of 16 `idle` took 7 to 8 % off again, `tune` 2 to 6,
//! `batch` 6. Measure with a [`State::keep_begun`](crate::heap::State::keep_begun)
//! that returns at once; remove it when these programs take no longer, as on a kernel that clears a
//! huge page only once.
//!
//! The first touch of a chunk with huge pages makes the system clear 2 MiB. If two threads touch it
//! at the same time, each clears a huge page, and one of the two is thrown away. So in a process
//! with threads, a chunk that was just begun is hidden from other threads (it is not in `filler`);
//! a thread that needs pages meanwhile begins another one. A chunk is filed when its thread comes
//! for more pages, and so has most likely touched the first ones; when other threads have asked for
//! pages so often that clearing must be done; when more chunks are begun than there are places; or
//! when the heap cannot grow, or is idle.
//!
//! Filing a chunk is always correct: a chunk that is here may have been filed already, because a
//! run of it was freed, and may even be vacant again. In the child of a fork, chunks of threads
//! that no longer exist are filed as the remaining threads ask for pages.

use crate::space::chunk::Chunk;

/// Chunks kept at the same time: about as many as threads clear at the same time on small machines.
const CHUNKS_MAX: usize = 4;
/// Requests by other threads after which a chunk is available to all: with one request every
/// microsecond or two, it has been cleared by then.
const OTHERS_REQUESTS: u8 = 64;

#[derive(Clone, Copy)]
struct Entry {
    chunk: &'static Chunk,
    /// The thread that began the chunk.
    thread: usize,
    /// Requests by other threads until the chunk is available to all.
    left: u8,
}

/// Which of the kept chunks are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// The chunks that are available to all threads.
    Due,
    All,
}

pub struct BegunChunks {
    /// Oldest first, without gaps.
    entries: [Option<Entry>; CHUNKS_MAX],
}

impl BegunChunks {
    pub const fn new() -> BegunChunks {
        BegunChunks {
            entries: [None; CHUNKS_MAX],
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries[0].is_none()
    }

    /// Keeps a chunk for the thread that began it. If there is no place, returns the oldest chunk,
    /// which the caller must file.
    pub fn keep(&mut self, chunk: &'static Chunk, thread: usize) -> Option<&'static Chunk> {
        let is_full = self.entries[CHUNKS_MAX - 1].is_some();
        let oldest = is_full.then(|| self.take_out(0)).flatten();
        let place = self.entries.iter_mut().find(|entry| entry.is_none());
        if let Some(place) = place {
            *place = Some(Entry {
                chunk,
                thread,
                left: OTHERS_REQUESTS,
            });
        }
        oldest
    }

    /// Counts a request of `thread` for every chunk kept here.
    pub fn count(&mut self, thread: usize) {
        for entry in self.entries.iter_mut().flatten() {
            entry.left = if entry.thread == thread {
                0
            } else {
                entry.left - 1
            };
        }
    }

    /// Removes a chunk that is available to all threads, or any chunk.
    pub fn take(&mut self, which: Begun) -> Option<&'static Chunk> {
        let is_due = |entry: &Option<Entry>| {
            entry.is_some_and(|entry| which == Begun::All || entry.left == 0)
        };
        self.entries
            .iter()
            .position(is_due)
            .and_then(|i| self.take_out(i))
    }

    #[cfg(test)]
    pub fn holds(&self, chunk: &Chunk) -> bool {
        let mut entries = self.entries.iter().flatten();
        entries.any(|entry| core::ptr::eq(entry.chunk, chunk))
    }

    fn take_out(&mut self, i: usize) -> Option<&'static Chunk> {
        let entry = self.entries[i].take()?;
        self.entries[i..].rotate_left(1);
        Some(entry.chunk)
    }
}
