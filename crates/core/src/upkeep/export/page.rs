//! The page of statistics that other processes read, word by word.
//!
//! A reader finds a page by the descriptor of its memory or by the root block
//! (`prof::root`), and takes the figures by the protocol of
//! [`crate::sys::seqlock`]. Everything here is a promise to readers of other builds: a
//! change needs another [`LAYOUT`]. Sections and rows may become longer within a layout, because
//! the figures say where each section lies.
//!
//! The process writes all of it but the [`StatsPage::request`], which a reader that may write the
//! memory sets; the process reads it with care.

use crate::class::CACHED_CLASSES;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::seqlock;

/// `MALLSTAT`, as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MALLSTAT");
/// The version of the layout.
pub const LAYOUT: u64 = 1;

/// A section of the figures: rows of words.
#[derive(Clone, Copy)]
pub struct Section {
    /// The first word, counted from the first figure.
    pub first: usize,
    pub rows: usize,
    /// Words of a row.
    pub width: usize,
}

impl Section {
    const fn after(before: Section, rows: usize, width: usize) -> Section {
        Section {
            first: before.first + before.rows * before.width,
            rows,
            width,
        }
    }

    /// The section in a word, as readers find it: 32 bits, 16 and 16.
    pub const fn word(self) -> u64 {
        (self.first as u64) << 32 | (self.rows as u64) << 16 | self.width as u64
    }
}

/// When the page is from, and where the sections are.
pub const ABOUT: Section = Section {
    first: 0,
    rows: 8,
    width: 1,
};
/// Figures of the process.
pub const TOTALS: Section = Section::after(ABOUT, 56, 1);
/// A row for each class that caches can hold, and one for larger blocks.
pub const CLASSES: Section = Section::after(TOTALS, CACHED_CLASSES + 1, 8);
/// A row for each of the first arenas.
pub const ARENAS: Section = Section::after(CLASSES, 64, 8);
/// A row for each kind of lock.
pub const LOCKS: Section = Section::after(ARENAS, 12, 4);
/// The number of figures.
pub const FIGURES: usize = Section::after(LOCKS, 0, 0).first;

/// The words of [`ABOUT`].
#[derive(Clone, Copy)]
pub enum About {
    /// Nanoseconds of the monotonic clock: the first call, and the publication.
    Began,
    Published,
    /// Publications so far.
    Count,
    /// The library's version: 32 bits, 16 and 16.
    Version,
    Totals,
    Classes,
    Arenas,
    Locks,
}

/// The words of [`TOTALS`]; bytes, unless noted.
#[derive(Clone, Copy)]
pub enum Total {
    Allocated,
    Active,
    Dirty,
    Muzzy,
    Retained,
    Mapped,
    Resident,
    Metadata,
    /// In thread caches, and in transfer caches.
    ThreadCached,
    TransferCached,
    /// Numbers.
    Threads,
    Arenas,
    /// Rounds of purging, system calls for them, and what became of dirty pages and of muzzy ones.
    Purges,
    Advices,
    Purged,
    MuzzyPurged,
    /// Blocks that caches took from arenas and gave back, and the numbers of batches; with large
    /// blocks that no cache holds.
    Taken,
    Given,
    Fills,
    Flushes,
    /// Most of [`Total::Allocated`] at any publication.
    Peak,
    /// Metadata that is mapped.
    MetadataMapped,
    /// 1 while the profiler samples, the mean bytes between samples (base-2 logarithm), live
    /// samples, call stacks, and samples that were lost.
    IsSampling,
    LgSample,
    Samples,
    Sites,
    SamplesLost,
    /// Milliseconds; -1 for never.
    DirtyDecay,
    MuzzyDecay,
    /// Whether the background thread exists, and its rounds.
    Background,
    BackgroundRounds,
    /// Nanoseconds that the publication before took to gather.
    Cost,
    /// Calls of `realloc` for no bytes.
    ZeroReallocs,
    /// Parts of the heap, as large as a huge page, in which huge pages are asked for.
    HugePages,
    /// Samples that share a site because there was no room for their stacks.
    SamplesMore,
}

/// The words of a row of [`CLASSES`].
#[derive(Clone, Copy)]
pub enum OfClass {
    /// Bytes of a block; 0 where there is no class, or none in particular.
    Size,
    /// Bytes of blocks in use.
    Allocated,
    /// Blocks in thread caches, and in transfer caches.
    ThreadCached,
    TransferCached,
    /// Bytes of slabs, or of runs.
    Pages,
    /// Blocks that caches took from arenas and gave back.
    Taken,
    Given,
    /// Blocks in use.
    Blocks,
}

/// The words of a row of [`ARENAS`].
#[derive(Clone, Copy)]
pub enum OfArena {
    /// The arena's number, plus 1; 0 where there is none.
    Number,
    Threads,
    /// Bytes of blocks in use or in thread caches.
    Taken,
    /// Bytes of blocks in transfer caches.
    TransferCached,
    /// Bytes of slabs and runs.
    Pages,
    /// The number of the page heap, and its bytes of dirty and muzzy pages. Arenas share page
    /// heaps.
    Heap,
    Dirty,
    Muzzy,
}

/// The rows of [`LOCKS`].
#[derive(Clone, Copy)]
pub enum Lock {
    Statistics,
    Subrelease,
    PageHeaps,
    Purging,
    Registry,
    Arenas,
    Bins,
    Samples,
    Heaps,
    Segments,
    Sites,
    Records,
}

/// The words of a row of [`LOCKS`].
#[derive(Clone, Copy)]
pub enum OfLock {
    /// How often the lock was taken, and how often a thread slept for it.
    Taken,
    Waits,
    /// Nanoseconds: in sum, and the longest.
    Waited,
    Longest,
}

/// What a reader can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Samples from now on, with this mean distance (base-2 logarithm) if one is given.
    Start(Option<u32>),
    Stop,
    /// Returns all free memory to the system.
    Purge,
    /// Writes a profile.
    Dump,
}

impl Verb {
    /// The verb of a request; `None` if there is none.
    pub fn of(request: u64) -> Option<Verb> {
        let argument = (request >> 8 & 0xff) as u32;
        Some(match request & 0xff {
            1 => Verb::Start(argument.checked_sub(1).filter(|&lg| lg < 64)),
            2 => Verb::Stop,
            3 => Verb::Purge,
            4 => Verb::Dump,
            _ => return None,
        })
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum RequestStatus {
    Done = 0,
    Unknown = 1,
    Failed = 2,
}

#[repr(C, align(64))]
pub struct StatsPage {
    magic: AtomicU64,
    /// [`LAYOUT`], and the bytes of the page in the upper half.
    layout: AtomicU64,
    sequence: AtomicU64,
    /// The process whose figures these are; 0 for the one that has the page in its own memory.
    pid: AtomicU64,
    /// From a reader: a verb, its argument, and six bytes that no two requests share.
    request: AtomicU64,
    /// The last request that was carried out, and its [`RequestStatus`].
    done: AtomicU64,
    answer: AtomicU64,
    /// The last request that a thread has taken on.
    taken: AtomicU64,
    figures: [AtomicU64; FIGURES],
}

impl StatsPage {
    /// Makes a page of zeros one that readers accept. What its figures are of comes first.
    pub fn begin(&self, pid: u32) {
        self.pid.store(pid.into(), Ordering::Relaxed);
        let bytes = size_of::<StatsPage>() as u64;
        self.layout.store(bytes << 32 | LAYOUT, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// The process whose page this is; 0 if it lies in its own memory.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed) as u32
    }

    /// Replaces the figures.
    pub fn publish(&self, figures: &[u64; FIGURES]) {
        seqlock::write(&self.sequence, &self.figures, figures);
    }

    /// A request that was not carried out yet.
    pub fn request(&self) -> Option<u64> {
        let request = self.request.load(Ordering::Acquire);
        (request != self.done.load(Ordering::Relaxed)).then_some(request)
    }

    /// Asks for something, as a reader does.
    #[cfg(test)]
    pub fn ask(&self, request: u64) {
        self.request.store(request, Ordering::Release);
    }

    /// Takes on a request that no thread has taken on.
    pub fn take_request(&self) -> Option<u64> {
        let taken = self.taken.load(Ordering::Relaxed);
        let request = self.request().filter(|&request| request != taken)?;
        let taken =
            (self.taken).compare_exchange(taken, request, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok().then_some(request)
    }

    /// Reports to the reader that its request was carried out.
    pub fn answer(&self, request: u64, answer: RequestStatus) {
        self.answer.store(answer as u64, Ordering::Relaxed);
        self.done.store(request, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// A reader of another build relies on this; a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_that_of_its_number() {
        assert_eq!(LAYOUT, 1);
        let page = [
            offset_of!(StatsPage, magic),
            offset_of!(StatsPage, layout),
            offset_of!(StatsPage, sequence),
            offset_of!(StatsPage, pid),
            offset_of!(StatsPage, request),
            offset_of!(StatsPage, done),
            offset_of!(StatsPage, answer),
            offset_of!(StatsPage, figures),
        ];
        assert_eq!(page, [0, 8, 16, 24, 32, 40, 48, 64]);
        let sections = [ABOUT, TOTALS, CLASSES, ARENAS, LOCKS].map(|s| (s.first, s.rows, s.width));
        assert_eq!(
            sections,
            [
                (0, 8, 1),
                (8, 56, 1),
                (64, 64, 8),
                (576, 64, 8),
                (1088, 12, 4)
            ]
        );
        assert_eq!(FIGURES, 1136);
        assert_eq!(
            [
                About::Published as usize,
                About::Version as usize,
                About::Locks as usize
            ],
            [1, 3, 7]
        );
        assert_eq!(
            [
                Total::ThreadCached as usize,
                Total::Purged as usize,
                Total::Peak as usize,
                Total::Samples as usize,
                Total::ZeroReallocs as usize,
                Total::SamplesMore as usize,
            ],
            [8, 14, 20, 24, 32, 34]
        );
        assert_eq!([OfClass::Pages as usize, OfClass::Blocks as usize], [4, 7]);
        assert_eq!([OfArena::Pages as usize, OfArena::Muzzy as usize], [4, 7]);
        assert_eq!([Lock::Bins as usize, Lock::Records as usize], [6, 11]);
        assert_eq!([OfLock::Waits as usize, OfLock::Longest as usize], [1, 3]);
    }

    #[test]
    fn requests_that_nobody_knows_have_no_verb() {
        assert_eq!(Verb::of(1), Some(Verb::Start(None)));
        assert_eq!(
            Verb::of(0xabcd << 16 | 17 << 8 | 1),
            Some(Verb::Start(Some(16)))
        );
        assert_eq!(Verb::of(0xff01), Some(Verb::Start(None)));
        assert_eq!(Verb::of(3), Some(Verb::Purge));
        assert_eq!(Verb::of(0), None);
        assert_eq!(Verb::of(99), None);
    }
}
