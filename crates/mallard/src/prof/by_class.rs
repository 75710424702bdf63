//! Counts samples by size class (`prof_stats`), as they were requested: without weights.

use super::samples::Sample;
use crate::class::{CLASSES, Class};
use crate::space::meta;
use crate::sys::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Sums over samples of one class: requested bytes, and blocks.
struct Sums {
    bytes: AtomicU64,
    blocks: AtomicU64,
}

/// The samples in use and those ever taken, by class.
type Table = [[Sums; 2]; CLASSES + 1];

/// In metadata memory; null if samples are not counted.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

fn table() -> Option<&'static Table> {
    // SAFETY: null, or a record that is never freed.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Begins to count. For a thread that is inside.
#[inline(never)]
pub fn begin() {
    if table().is_none()
        && let Some(room) = meta::take_apart(size_of::<Table>())
    {
        TABLE.store(room.as_ptr().cast(), Ordering::Release);
    }
}

/// Counts a sample, or with `false` that it was freed.
#[inline(never)]
pub fn count(sample: &Sample, is_new: bool) {
    let class = Class::of(sample.usable).index();
    let Some([live, ever]) = table().and_then(|table| table.get(class)) else {
        return;
    };
    let bytes = sample.requested as u64;
    if is_new {
        for sums in [live, ever] {
            sums.bytes.fetch_add(bytes, Ordering::Relaxed);
            sums.blocks.fetch_add(1, Ordering::Relaxed);
        }
    } else {
        live.bytes.fetch_sub(bytes, Ordering::Relaxed);
        live.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The requested bytes and the number of samples of a class: those in use, or with `ever` all.
/// `None` if they are not counted.
pub fn read(class: Class, ever: bool) -> Option<[u64; 2]> {
    let sums = &table()?.get(class.index())?[usize::from(ever)];
    Some([&sums.bytes, &sums.blocks].map(|sum| sum.load(Ordering::Relaxed)))
}
