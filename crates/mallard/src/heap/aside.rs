//! Chunks that were begun a moment ago, each kept for the thread that began it.
//!
//! The first touch of a chunk with huge pages has the system clear 2 MiB. Two threads that touch it
//! at the same time both clear them, and one huge page is thrown away. So in a process with threads
//! nobody else finds a chunk that was just begun (`filler` does not have it): whoever wants pages
//! meanwhile begins one as well. It is filed when its thread comes for more, and so has most likely
//! touched what it got first; when others came for pages so often that it must be done; when more
//! chunks are begun than there are places; or when the heap cannot grow, or is idle.
//!
//! Filing a chunk is right at any time: one that is here may have been filed already, because a run
//! of it was freed, and may even be vacant again. After a fork the child's chunks are filed as
//! others come for pages.

use crate::space::chunk::Chunk;

/// Chunks that are kept at the same time: as threads that clear at the same time, on small
/// machines.
const PLACES: usize = 4;
/// Requests for pages by others after which a chunk is everybody's: with one of them every
/// microsecond or two it has been cleared meanwhile.
const OTHERS: u8 = 64;

#[derive(Clone, Copy)]
struct Entry {
    chunk: &'static Chunk,
    /// Who began it.
    thread: usize,
    /// Others' requests until it is everybody's.
    left: u8,
}

pub struct Aside {
    /// The oldest first, and nothing between them.
    entries: [Option<Entry>; PLACES],
}

impl Aside {
    pub const fn new() -> Aside {
        Aside {
            entries: [None; PLACES],
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries[0].is_none()
    }

    /// Keeps a chunk for the thread that began it; hands out the one that has been here for longest
    /// if there is no place.
    pub fn keep(&mut self, chunk: &'static Chunk, thread: usize) -> Option<&'static Chunk> {
        let is_full = self.entries[PLACES - 1].is_some();
        let oldest = is_full.then(|| self.take_out(0)).flatten();
        let place = self.entries.iter_mut().find(|entry| entry.is_none());
        if let Some(place) = place {
            *place = Some(Entry {
                chunk,
                thread,
                left: OTHERS,
            });
        }
        oldest
    }

    /// Counts a request of a thread for all that are here.
    pub fn count(&mut self, thread: usize) {
        for entry in self.entries.iter_mut().flatten() {
            entry.left = match entry.thread == thread {
                true => 0,
                false => entry.left - 1,
            };
        }
    }

    /// Hands out one that is everybody's now, or with `all` any.
    pub fn take(&mut self, all: bool) -> Option<&'static Chunk> {
        let is_due = |entry: &Option<Entry>| entry.is_some_and(|entry| all || entry.left == 0);
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
