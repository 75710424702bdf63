//! The file of a plan while it is compiled: a region for each thread, in which words are appended
//! and changed later. The file is mapped, so the kernel writes out what memory has no room for.

use std::fs::File;
use std::io;

use memmap2::MmapMut;

use super::HEAD_WORDS;

/// Room that a thread's region has besides its events: ticks, starts of threads.
const SPARE_WORDS: u64 = 64;
/// The most words that one event becomes: a tick, the start of another thread and the tick before
/// it, a `realloc`, a free whose place was earlier, the tick before the end of the process. A fork
/// of the process is fewer.
const WORDS_PER_EVENT: u64 = 8;

#[derive(Debug)]
pub struct Regions {
    map: MmapMut,
    regions: Vec<Region>,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    /// In words of the file.
    begin: usize,
    used: usize,
    room: usize,
}

impl Regions {
    /// Regions for threads with this many events and forks. The file gets holes, not memory.
    pub fn new(file: &File, events: impl Iterator<Item = u64>) -> io::Result<Regions> {
        let mut begin = HEAD_WORDS;
        let mut regions = Vec::new();
        for events in events {
            let room = events
                .checked_mul(WORDS_PER_EVENT)
                .and_then(|words| usize::try_from(words + SPARE_WORDS).ok())
                .filter(|room| *room < 1 << 56)
                .ok_or_else(too_long)?;
            regions.push(Region {
                begin,
                used: 0,
                room,
            });
            begin = begin.checked_add(room).ok_or_else(too_long)?;
        }
        let bytes = (begin as u64).checked_mul(8).ok_or_else(too_long)?;
        file.set_len(bytes)?;
        // SAFETY: the file is new and ours alone; no other process changes it.
        let map = unsafe { MmapMut::map_mut(file)? };
        Ok(Regions { map, regions })
    }

    /// Appends a word and returns its place in the thread's region.
    pub fn push(&mut self, thread: usize, word: u64) -> usize {
        let region = &mut self.regions[thread];
        let place = region.used;
        assert!(place < region.room, "an event became too many words");
        region.used += 1;
        *self.word(thread, place) = word.to_le_bytes();
        place
    }

    /// The number of words of a thread: the place of the next.
    pub fn length(&self, thread: usize) -> usize {
        self.regions[thread].used
    }

    fn word(&mut self, thread: usize, place: usize) -> &mut [u8; 8] {
        let at = (self.regions[thread].begin + place) * 8;
        (&mut self.map[at..at + 8]).try_into().expect("8 bytes")
    }

    /// Changes a word.
    pub fn change(&mut self, thread: usize, place: usize, change: impl FnOnce(u64) -> u64) {
        let word = self.word(thread, place);
        *word = change(u64::from_le_bytes(*word)).to_le_bytes();
    }

    /// Writes the head and moves the regions together, followed by the table. `threads` has the
    /// lane, the first time and the process of each. Returns the length of the file in bytes.
    pub fn finish(
        mut self,
        threads: &[[u64; 3]],
        head: impl FnOnce(u64) -> Vec<u64>,
    ) -> io::Result<u64> {
        let mut at = HEAD_WORDS;
        let mut table = Vec::new();
        for (region, thread) in self.regions.iter().zip(threads) {
            let from = region.begin * 8;
            self.map.copy_within(from..from + region.used * 8, at * 8);
            table.extend([(at * 8) as u64, region.used as u64]);
            table.extend(thread);
            at += region.used;
        }
        let head = head((at * 8) as u64);
        for (place, word) in (at..).zip(&table).chain((0..).zip(&head)) {
            // A region has more room than its entry of the table takes.
            self.map[place * 8..place * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        Ok(((at + table.len()) * 8) as u64)
    }
}

fn too_long() -> io::Error {
    io::Error::other("the recording is too long for a plan")
}
