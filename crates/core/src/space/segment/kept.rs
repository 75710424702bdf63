//! The mark of large blocks that a transfer cache keeps, for whole batches of them.
//!
//! Caches move such blocks in batches, as often as a program allocates and frees more of them than
//! its thread may keep. So what the first segment says of itself is read once for a batch.

use super::layout::word_of_page;
use super::record::PageRecord;
use super::{SEGMENTS, words};
use crate::space::segment::chunk::CHUNK;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::page::PAGE;

/// The record map of the first segment.
#[derive(Clone, Copy)]
struct FirstMap {
    heap: usize,
    bytes: usize,
    tables: usize,
}

impl FirstMap {
    #[inline(always)]
    fn now() -> FirstMap {
        let first = SEGMENTS.first();
        let bytes = first.chunks.load(Ordering::Acquire) * CHUNK;
        FirstMap {
            heap: first.heap(),
            bytes,
            tables: first.tables.load(Ordering::Relaxed),
        }
    }

    /// The word of the page of `p`, if that is in the first segment.
    #[inline(always)]
    fn word(self, p: usize) -> Option<&'static AtomicU64> {
        let offset = p.wrapping_sub(self.heap);
        // SAFETY: the page lies in a chunk below the committed end, whose tables are committed.
        (offset < self.bytes).then(|| unsafe { word_of_page(self.tables, offset / PAGE) })
    }
}

/// Marks plain large blocks, which the caller has. Calls `other` for each that is none, and for
/// those beyond the first segment.
#[inline(always)]
pub fn mark_all(blocks: &[usize], other: impl Fn(usize)) {
    let map = FirstMap::now();
    for &p in blocks {
        let marked = map
            .word(p)
            .and_then(|at| Some((at, PageRecord::kept(words::record(at), p)?)));
        match marked {
            Some((at, word)) => words::change(at, word),
            None => other(p),
        }
    }
}

/// Takes the mark off large blocks, which the caller has. Calls `other` for those beyond the first
/// segment.
#[inline(always)]
pub fn unmark_all(blocks: &[usize], other: impl Fn(usize)) {
    let map = FirstMap::now();
    for &p in blocks {
        match map.word(p) {
            Some(at) => words::change(at, PageRecord::unkept(words::record(at))),
            None => other(p),
        }
    }
}
