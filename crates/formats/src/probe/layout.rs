//! The memory of counters that the probe and the lab share.
//!
//! A folder (mode 0700) holds one file `control`, which the lab writes before the program starts,
//! and one segment `PID-N` for each image of a process: N counts the images that a process becomes
//! by `exec`, and the processes that have the same id one after the other.
//!
//! A segment is a [`Header`], the table of [`Birth`]s with a tag for each, and the [`Slot`]s: one
//! for each thread that lives, used again by a later thread once its thread has ended. The file has
//! the length of all slots from the start; its blocks are reserved [`BATCH_SLOTS`] at a time, so
//! that a full file system is an error code and not a signal. Slot 0 belongs to no thread: threads
//! that have ended their own slot, or found none, share it and add atomically.
//!
//! A thread writes its own slot with plain stores (relaxed atomics), so a reader sees each counter
//! as it was at some time, and all of them exactly after the process has ended. Counters only grow,
//! also from one thread to the next in the same slot.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// The variable that names the folder.
pub const VARIABLE: &str = crate::variables::PROBE;
/// The first eight bytes of the control file and of a segment that is complete.
pub const MAGIC: u64 = crate::mark(b"mlrdprb1");

/// The most threads that have slots at the same time.
pub const SLOTS_MAX: usize = 16_384;
/// The slots whose memory is reserved together.
pub const BATCH_SLOTS: usize = 16;
/// The entries of the table of births. Their tags take a quarter of a CPU's first cache at most.
pub const BIRTH_ENTRIES: usize = 8192;
/// One block in this many, on average, is followed from its birth to its end.
pub const BLOCKS_PER_FOLLOWED: u32 = 128;
/// Classes of sizes and of lifetimes: class N holds the values of N bits.
pub const CLASSES: usize = 48;
/// Threads in the matrix of frees; further threads share its rows.
pub const MATRIX_THREADS: usize = 16;

/// The name of the file that says what the lab asks for.
pub const CONTROL_FILE: &str = "control";

/// What the lab asks of every process, at the start of [`CONTROL_FILE`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Control {
    pub magic: u64,
    pub flags: u32,
    /// Samples per second of each thread's CPU time by a timer signal; 0 for none.
    pub timer_hz: u32,
    /// For a recording: the chunks that a process may use, and the lab's process.
    pub chunks: u32,
    pub lab: u32,
    /// For later versions; zero.
    pub reserved: [u64; 5],
}

/// Ask the allocator to return memory when the program ends, and measure what that changes.
pub const TRIM_AT_EXIT: u32 = 1;
/// Record every call ([`super::chunks`]).
pub const RECORD: u32 = 2;
/// Drop records instead of waiting for the lab.
pub const LOSSY: u32 = 4;
/// Stamp by `CLOCK_MONOTONIC`: the time-stamp counters of this machine's CPUs disagree.
pub const MONOTONIC: u32 = 8;

/// What a thread does at the moment. The low byte of [`Cell::word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Outside = 0,
    Malloc = 1,
    Calloc = 2,
    Realloc = 3,
    Aligned = 4,
    Free = 5,
    SizedFree = 6,
    Query = 7,
    Trim = 8,
}

/// The kinds of calls that are counted: [`State::Malloc`] to [`State::Trim`].
pub const KINDS: usize = 8;

/// What is counted of one thread.
#[repr(C, align(128))]
pub struct Cell {
    /// `calls begun and ended << 8 | State`: the same word at two times, with a state inside, means
    /// one call that lasts. Slot 0 has none.
    pub word: AtomicU64,
    /// The id of the thread; 0 while the slot is free.
    pub owner: AtomicU32,
    /// How many threads have had this slot.
    pub owners: AtomicU32,
    /// Calls by kind: `calls[State as usize - 1]`.
    pub calls: [AtomicU64; KINDS],
    /// Bytes requested.
    pub requested: AtomicU64,
    /// Bytes of blocks that began, by their usable size.
    pub begun: AtomicU64,
    /// Bytes of blocks that ended, by their usable size.
    pub ended: AtomicU64,
    /// Timer samples of CPU time inside and outside the allocator.
    pub ticks_inside: AtomicU32,
    pub ticks_outside: AtomicU32,
    /// Calls that returned no memory.
    pub failed: AtomicU64,
    /// The part of `begun - ended` that [`Header::live`] has.
    pub passed_on: AtomicU64,
}

/// A cell and the requests of its thread by size.
#[repr(C, align(512))]
pub struct Slot {
    pub cell: Cell,
    /// Requests by the number of bits of their size.
    pub sizes: [AtomicU64; CLASSES],
}

/// The birth of a block that is followed.
#[repr(C)]
pub struct Birth {
    /// `slot of the thread << 48 | address`; 0 if the entry is empty. A block that finds no
    /// free entry in its group is not followed.
    pub slot_and_address: AtomicU64,
    /// The time-stamp counter.
    pub when: AtomicU64,
}

/// The memory at the end of the program, and after the allocator was asked to give it back.
#[repr(C)]
pub struct Trimmed {
    /// Bytes resident, bytes of those that the kernel may take (LazyFree), and live bytes.
    pub rss: AtomicU64,
    pub lazy: AtomicU64,
    pub live: AtomicI64,
    /// Bytes resident that belong to no file: the heap, stacks, and the program's own mappings.
    pub anonymous: AtomicU64,
    /// The first, second and fourth of these figures, after the allocator was asked.
    pub rss_after: AtomicU64,
    pub lazy_after: AtomicU64,
    pub anonymous_after: AtomicU64,
    pub took_ns: AtomicU64,
    /// A [`Purge`].
    pub purge: AtomicU32,
    /// 1: the first four fields are valid; 2: all.
    pub stage: AtomicU32,
}

/// How an allocator is asked to give memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Purge {
    None = 0,
    /// `mallctl("arena.4096.purge")`: jemalloc, Mallard.
    Mallctl = 1,
    /// `mi_collect(true)`.
    Mimalloc = 2,
    /// gperftools' `MallocExtension_ReleaseFreeMemory`.
    Gperftools = 3,
    /// tcmalloc's `MallocExtension_Internal_ReleaseMemoryToSystem`.
    Tcmalloc = 4,
    /// `malloc_trim(0)`.
    Trim = 5,
}

/// The beginning of a segment, a page.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    pub pid: AtomicU32,
    /// The process whose fork made this one, if it did not execute a program since; else 0.
    pub forked_from: AtomicU32,
    /// The time-stamp counter and `CLOCK_MONOTONIC` when the segment was made.
    pub tsc: AtomicU64,
    pub clock_ns: AtomicU64,
    /// Slots that have ever been used, slot 0 included, and slots whose memory is reserved.
    pub used: AtomicU32,
    pub reserved: AtomicU32,
    /// Slots that are free again.
    pub released: AtomicU32,
    /// 1 when the program has returned from `main` or called `exit`.
    pub ended: AtomicU32,
    /// The lab's request: 1 asks for a trim by the next call that is followed.
    pub request: AtomicU32,
    /// 1 if timer signals could not be had (the program uses that signal itself).
    pub no_timer: AtomicU32,
    /// Live bytes that a forked process began with.
    pub inherited: AtomicI64,
    /// Live bytes of all slots but slot 0, and the most that they have been. Each thread adds its
    /// bytes in steps of [`LIVE_STEP_BYTES`], so that both may be wrong by as much for each.
    pub live: AtomicI64,
    pub peak: AtomicI64,
    /// Followed blocks that ended in the thread that began them, and in another.
    pub freed_here: AtomicU64,
    pub freed_elsewhere: AtomicU64,
    /// Threads that found no slot.
    pub without_slot: AtomicU64,
    pub trimmed: Trimmed,
    /// Lifetimes of followed blocks by the number of bits of their length in ticks.
    pub lifetimes: [AtomicU64; CLASSES],
    /// Followed blocks by the thread that began them (row) and ended them (column).
    pub matrix: [[AtomicU32; MATRIX_THREADS]; MATRIX_THREADS],
    /// The program's file and the object that serves malloc, each ending with a zero.
    pub program: [AtomicU8; PATH_BYTES],
    pub allocator: [AtomicU8; PATH_BYTES],
}

/// Bytes by which a thread's live bytes change before it passes them on.
pub const LIVE_STEP_BYTES: i64 = 64 << 10;

/// The room for a path.
pub const PATH_BYTES: usize = 512;

/// The entries that a block may have, whose tags are one word.
pub const GROUP_ENTRIES: usize = 8;
pub const GROUPS: usize = BIRTH_ENTRIES / GROUP_ENTRIES;

/// Where the tags of the births begin. A tag is a byte of the hash of the block whose birth the
/// entry has, or 0 for none; a word has those of a group, its lowest byte the first.
pub const TAGS_AT: usize = size_of::<Header>();
/// Where the other parts of a segment begin, and its length.
pub const BIRTHS_AT: usize = TAGS_AT + BIRTH_ENTRIES;
pub const SLOTS_AT: usize = BIRTHS_AT + BIRTH_ENTRIES * size_of::<Birth>();
pub const SEGMENT_BYTES: usize = SLOTS_AT + SLOTS_MAX * size_of::<Slot>();

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<Cell>() == 128);
const _: () = assert!(size_of::<Slot>() == 512 && size_of::<Control>() == 64);
const _: () = assert!(
    (BATCH_SLOTS * size_of::<Slot>()).is_multiple_of(4096) && SLOTS_MAX.is_multiple_of(BATCH_SLOTS)
);

/// The class of a size or a lifetime: its number of bits.
#[inline]
pub fn class_of(value: u64) -> usize {
    ((u64::BITS - value.leading_zeros()) as usize).min(CLASSES - 1)
}
