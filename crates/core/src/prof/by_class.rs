//! Counts samples by size class (`prof_stats`), as they were requested: without weights.

use super::samples::Sample;
use crate::class::{CLASSES, Class};
use crate::space::meta;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::published::Published;

/// Sums over samples of one class: requested bytes, and blocks.
struct Sums {
    bytes: AtomicU64,
    blocks: AtomicU64,
}

/// The samples in use and those ever taken, by class.
type Table = [[Sums; 2]; CLASSES + 1];

/// In metadata memory; none if samples are not counted.
static TABLE: Published<Table> = Published::none();

/// Begins to count. For a thread that is inside.
#[inline(never)]
pub fn begin() {
    if TABLE.get().is_none()
        && let Some(room) = meta::take_apart(size_of::<Table>())
    {
        // SAFETY: the room is aligned, large enough and zero, which are valid atomics; it is never
        // freed, and nothing else uses it.
        TABLE.set(unsafe { room.cast().as_ref() });
    }
}

/// What happened to a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Taken,
    Freed,
}

/// The samples of a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// The samples in use.
    Live,
    /// All samples that were ever taken.
    Ever,
}

/// Counts a sample that was taken or freed.
#[inline(never)]
pub fn count(sample: &Sample, change: Change) {
    let class = Class::of(sample.usable).index();
    let Some([live, ever]) = TABLE.get().and_then(|table| table.get(class)) else {
        return;
    };
    let bytes = sample.requested as u64;
    if change == Change::Taken {
        for sums in [live, ever] {
            sums.bytes.fetch_add(bytes, Ordering::Relaxed);
            sums.blocks.fetch_add(1, Ordering::Relaxed);
        }
    } else {
        live.bytes.fetch_sub(bytes, Ordering::Relaxed);
        live.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The requested bytes and the number of samples of a class. `None` if they are not counted.
pub fn read(class: Class, span: Span) -> Option<[u64; 2]> {
    let sums = &TABLE.get()?.get(class.index())?[span as usize];
    Some([&sums.bytes, &sums.blocks].map(|sum| sum.load(Ordering::Relaxed)))
}
