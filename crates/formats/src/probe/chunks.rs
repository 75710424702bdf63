//! The memory in which the probe records, and which the lab empties.
//!
//! Beside its segment `PID-N`, a process that is recorded has a pool `PID-N.chunks`: a [`Pool`] and
//! [`CHUNKS_MAX`] chunks of 64 KiB, of which it uses as many as the control file permits. A thread
//! takes a free chunk, writes [`Record`]s into it, marks it full and takes the next one. The lab
//! reads full chunks, fills them with zeros, and marks them free. So a record whose first word is
//! zero is one that was not written yet, and what a process that was killed has recorded is all
//! there.
//!
//! The state of a chunk says what may use it. None: its memory is not reserved yet. Free: a thread
//! may take it. Taken: its thread writes, and the lab may read. Full: only the lab uses it.
//!
//! Threads that have no chunk of their own share the common one: those that end, and those beyond
//! three quarters of the chunks. They write it one at a time, and say which thread goes on.

use crate::event::Kind;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// What the file of a pool is called after its segment's.
pub const SUFFIX: &str = ".chunks";

pub const CHUNK_BYTES: usize = 64 << 10;
/// The most chunks of a process.
pub const CHUNKS_MAX: usize = 4096;
/// Records of a chunk.
pub const CHUNK_RECORDS: usize = (CHUNK_BYTES - size_of::<Head>()) / size_of::<Record>();

/// States of a chunk.
pub const NONE: u32 = 0;
pub const FREE: u32 = 1;
pub const TAKEN: u32 = 2;
pub const FULL: u32 = 3;

/// The beginning of a pool.
#[repr(C, align(4096))]
pub struct Pool {
    /// `layout::MAGIC`, written last.
    pub magic: AtomicU64,
    /// The clock just before the fork that made this process; else 0.
    pub forked_at: AtomicU64,
    /// Chunks that may be used, and chunks that threads have as their own.
    pub count: AtomicU32,
    pub taken: AtomicU32,
    /// Threads that wait for a free chunk, on the word `freed`, which the lab counts up.
    pub waiting: AtomicU32,
    pub freed: AtomicU32,
    /// 1: the lab wants no more records.
    pub stop: AtomicU32,
    /// 1 while a thread writes the common chunk.
    pub lock: AtomicU32,
    /// The number of the common chunk plus 1; 0 if there is none. Its next record, and the thread
    /// that it belongs to.
    pub common: AtomicU32,
    pub common_next: AtomicU32,
    pub common_thread: AtomicU32,
    /// Records that were left out.
    pub dropped: AtomicU64,
    /// How often and how long (in ticks) threads have waited.
    pub stalls: AtomicU64,
    pub stalled: AtomicU64,
    pub states: [AtomicU32; CHUNKS_MAX],
}

/// The beginning of a chunk.
#[repr(C, align(64))]
pub struct Head {
    /// The id of the thread; 0 for the common chunk.
    pub thread: AtomicU32,
    /// The chunks that this thread has had before.
    pub serial: AtomicU32,
    /// The clock that the first record counts from.
    pub base: AtomicU64,
}

/// One record. The first word is written last:
/// `align << ALIGN_AT | kind << KIND_AT | address`, never 0.
/// The second: `size << SIZE_AT | ticks since the base`.
#[repr(C)]
pub struct Record {
    pub first: AtomicU64,
    pub second: AtomicU64,
}

pub const ADDRESS_MASK: u64 = (1 << KIND_AT) - 1;
pub const KIND_AT: u32 = 48;
pub const KIND_MASK: u64 = 0x1f;
pub const ALIGN_AT: u32 = 53;
pub const ALIGN_MASK: u64 = 0x3f;
pub const SIZE_AT: u32 = 36;
pub const TICKS_MASK: u64 = (1 << SIZE_AT) - 1;
/// Larger sizes take a record of their own.
pub const LARGEST_SIZE: u64 = (1 << (64 - SIZE_AT)) - 1;
/// The size of a stall is in units of this many ticks.
pub const STALL_SHIFT: u32 = 10;

// The kinds of records: those of events ([`Kind`]), and the recorder's own.
/// The second word is the clock, and the base of all records that follow.
pub const CLOCK: u64 = Kind::LAST as u64 + 1;
/// The second word is the size of the record that follows.
pub const LARGE: u64 = CLOCK + 1;
/// In the common chunk: the address is the thread of all records that follow.
pub const THREAD: u64 = LARGE + 1;

/// Where the chunks begin, and the length of the file.
pub const CHUNKS_AT: usize = size_of::<Pool>();
pub const POOL_BYTES: usize = CHUNKS_AT + CHUNKS_MAX * CHUNK_BYTES;

const _: () = assert!(THREAD <= KIND_MASK);
const _: () = assert!(size_of::<Head>() == 64 && size_of::<Record>() == 16);
const _: () = assert!(CHUNK_RECORDS == 4092 && CHUNKS_AT.is_multiple_of(4096));
