//! Lengths of large blocks in pages, and the counts of pages and of blocks.

use super::count::Count;
use crate::class::{CACHED_MAX, Class, LARGE_CLASSES, SLAB_MAX};
use crate::hardened;
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::page::PAGE;

/// A number of pages, in a cache line of its own.
#[repr(align(64))]
pub(super) struct Counter(AtomicUsize);

impl Counter {
    #[inline(always)]
    pub fn add(&self, pages: usize) {
        self.0.fetch_add(pages, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn sub(&self, pages: usize) {
        self.0.fetch_sub(pages, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed) * PAGE
    }
}

/// Pages of all slabs.
pub(super) static SLABS: Counter = Counter(AtomicUsize::new(0));
/// Pages of all large blocks, those in thread caches and transfer caches included.
pub(super) static LARGE: Counter = Counter(AtomicUsize::new(0));

/// Bytes of all large blocks, those in thread caches and transfer caches included.
pub fn large_bytes() -> usize {
    LARGE.bytes()
}

/// Bytes of pages that hold blocks, including all of each slab.
pub fn footprint() -> usize {
    SLABS.bytes() + LARGE.bytes()
}

/// Option: blocks that caches do not hold end with the last page needed, not with their class.
/// Hardened ones always do ([`Pages::exactly`]).
static WHOLE_PAGES: AtomicBool = AtomicBool::new(false);

/// Sets whether blocks that caches do not hold end with the last page needed.
pub(super) fn set_whole(whole_pages: bool) {
    WHOLE_PAGES.store(whole_pages, Ordering::Relaxed);
}

fn are_whole() -> bool {
    WHOLE_PAGES.load(Ordering::Relaxed)
}

/// Whether a block may be shorter than its class.
pub(super) fn may_be_short() -> bool {
    are_whole() || hardened::are_any()
}

/// The length of a block. Up to [`CACHED_MAX`] bytes it is that of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    pub(super) len: usize,
    /// The pages of them that were asked for.
    pub(super) wanted: usize,
}

impl Pages {
    /// The length for `size` bytes, at most [`crate::class::MAX`].
    #[inline(never)]
    pub fn of(size: usize) -> Pages {
        let wanted = size.div_ceil(PAGE);
        let len = if size > CACHED_MAX && are_whole() {
            wanted
        } else {
            Class::of(size.max(SLAB_MAX + 1)).pages()
        };
        Pages { len, wanted }
    }

    /// The pages that `size` bytes need, whatever the class: for blocks that no cache takes.
    pub fn exactly(size: usize) -> Pages {
        let len = size.max(SLAB_MAX + 1).div_ceil(PAGE);
        Pages { len, wanted: len }
    }

    /// The same length, of which at most `bytes` bytes are known to be used.
    pub fn wanting(self, bytes: usize) -> Pages {
        let wanted = self.wanted.min(bytes.div_ceil(PAGE));
        Pages { wanted, ..self }
    }

    pub fn bytes(self) -> usize {
        self.len * PAGE
    }
}

impl From<Class> for Pages {
    fn from(class: Class) -> Pages {
        let len = class.pages();
        Pages { len, wanted: len }
    }
}

/// An arena's counts of all large classes.
pub struct Counts {
    pub classes: [Count; LARGE_CLASSES],
    /// Sum of the pages by which blocks are shorter than their classes.
    pub short: AtomicUsize,
    /// Sum of the extra pages of blocks that begin inside a page.
    pub spread: AtomicUsize,
}

impl Counts {
    pub(super) fn of(&self, pages: usize) -> &Count {
        &self.classes[Class::of(pages * PAGE).large_index()]
    }

    /// Updates `short` when a block changes its length; 0 pages for no block.
    pub(super) fn adjust(&self, old: usize, new: usize) {
        let short = |pages: usize| match pages {
            0 => 0,
            _ => Class::of(pages * PAGE).pages() - pages,
        };
        let more = short(new).wrapping_sub(short(old));
        if more != 0 {
            self.short.fetch_add(more, Ordering::Relaxed);
        }
    }
}
