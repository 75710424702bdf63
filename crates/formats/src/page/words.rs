//! The words of the sections.

/// The words of [`ABOUT`](super::ABOUT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// Nanoseconds of the monotonic clock: the first call, and the publication.
    Began,
    Published,
    /// Publications so far.
    Count,
    /// The library's version ([`version_of`](super::version_of)).
    Version,
    /// Where the other sections lie ([`Section::of`](super::Section::of)).
    Totals,
    Classes,
    Arenas,
    Locks,
}

/// Makes the words of the totals, and a structure of their values.
macro_rules! totals {
    ($($(#[$doc:meta])* $word:ident $name:ident,)*) => {
        /// The words of [`TOTALS`](super::TOTALS); bytes, unless noted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Total { $($(#[$doc])* $word,)* }

        /// The figures of a process, in the order of the page; bytes, unless noted.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl Totals {
            pub fn read(word: impl Fn(Total) -> u64) -> Totals {
                Totals { $($name: word(Total::$word),)* }
            }

            /// Every figure with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

totals! {
    /// Blocks that the program holds, with the sizes of their classes.
    Allocated allocated,
    /// Pages with slabs and large blocks.
    Active active,
    /// Free pages with old contents, and those that the system may take.
    Dirty dirty,
    Muzzy muzzy,
    /// Free pages without memory.
    Retained retained,
    Mapped mapped,
    /// An upper bound of the memory behind all of it.
    Resident resident,
    /// The allocator's own records.
    Metadata metadata,
    /// Free blocks in thread caches, and in transfer caches.
    ThreadCached thread_cached,
    TransferCached transfer_cached,
    /// Numbers.
    Threads threads,
    Arenas arenas,
    /// Rounds of purging, system calls for them, and the bytes of dirty and of muzzy pages.
    Purges purges,
    Advices advices,
    Purged purged,
    MuzzyPurged muzzy_purged,
    /// Blocks that caches took from arenas and gave back, and the numbers of batches; with large
    /// blocks that no cache holds.
    Taken taken,
    Given given,
    Fills fills,
    Flushes flushes,
    /// Most of [`Total::Allocated`] at any publication.
    Peak peak,
    /// Metadata that is mapped.
    MetadataMapped metadata_mapped,
    /// 1 while the profiler samples, the mean bytes between samples (base-2 logarithm), live
    /// samples, call stacks, and samples that were lost.
    IsSampling is_sampling,
    LgSample lg_sample,
    Samples samples,
    Sites sites,
    SamplesLost samples_lost,
    /// Milliseconds; -1 for never.
    DirtyDecay dirty_decay_ms,
    MuzzyDecay muzzy_decay_ms,
    /// Whether the background thread exists, and its rounds.
    Background background_thread,
    BackgroundRounds background_rounds,
    /// Nanoseconds that the publication before took to gather.
    Cost cost_ns,
    /// Calls of `realloc` for no bytes.
    ZeroReallocs zero_reallocs,
    /// Parts of the heap, as large as a huge page, in which huge pages are asked for.
    HugePages huge_pages,
    /// Samples that share a call stack because there was no room for theirs.
    SamplesMore samples_more,
}

impl Totals {
    pub fn cached(&self) -> u64 {
        self.thread_cached + self.transfer_cached
    }

    /// The part of the pages in use that holds no block of the program: free regions of slabs and
    /// cached blocks.
    pub fn fragmentation(&self) -> f64 {
        match self.active {
            0 => 0.0,
            active => active.saturating_sub(self.allocated) as f64 / active as f64,
        }
    }

    /// The mean bytes between samples; `None` while there are none taken.
    pub fn sampling(&self) -> Option<u64> {
        (self.is_sampling != 0).then(|| 1 << self.lg_sample.min(63))
    }
}

/// The words of a row of [`CLASSES`](super::CLASSES).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// The words of a row of [`ARENAS`](super::ARENAS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// Makes the kinds of locks, and their names.
macro_rules! locks {
    ($($lock:ident $name:literal,)*) => {
        /// The rows of [`LOCKS`](super::LOCKS): kinds of locks of the process.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Lock { $($lock,)* }

        impl Lock {
            pub const COUNT: usize = Lock::NAMES.len();
            /// Their names, in the order of the rows.
            pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];
            /// The same in one text, which needs no relocation: a space follows each name.
            pub const TEXT: &str = concat!($($name, " "),*);
        }
    };
}

locks! {
    Statistics "statistics",
    Subrelease "subrelease",
    PageHeaps "page_heaps",
    Purging "purging",
    Registry "registry",
    Arenas "arenas",
    Bins "bins",
    Samples "samples",
    Heaps "heaps",
    Segments "segments",
    Sites "sites",
    Records "records",
}

impl Lock {
    pub const fn name(self) -> &'static str {
        Lock::NAMES[self as usize]
    }
}

/// The words of a row of [`LOCKS`](super::LOCKS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfLock {
    /// How often the lock was taken, and how often a thread slept for it.
    Taken,
    Waits,
    /// Nanoseconds: in sum, and the longest.
    Waited,
    Longest,
}
