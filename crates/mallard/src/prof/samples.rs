//! The sampled blocks: where they lie, and what is known of each.
//!
//! A sampled block of up to 14 KiB lies in a *span*: a run of pages with the shape of a slab of its
//! class, whose pages the page map files under no class. So a free of one takes the slow path,
//! which finds the span, while frees of all other blocks stay as they are. The span's record has a
//! bitmap of its free regions and a [`Sample`] for each region.
//!
//! A larger sampled block is an ordinary large block, filed under no class and with a bit in its
//! page record. Its sample is in a table of addresses.
//!
//! One lock guards all of this.

mod large;
mod rows;

use super::gap::{Weight, rounded};
use super::root::{self, Version};
use super::sites::{Amount, Site};
use crate::class::{Class, SLAB_CLASSES, SlabShape};
use crate::die;
use crate::heap::PAGE_HEAPS;
use crate::space::segment::PageRecord;
use crate::space::{Segment, meta};
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::page::PAGE;
use crate::sys::rank::Rank;
use core::cell::Cell;
#[cfg(test)]
use core::mem::offset_of;
use large::LargeTable;
pub use large::{Large, enter_large, leave_large};
pub use rows::{Row, Rows, rows};

/// What is known of a sampled block. Readers outside the process know its layout
/// ([`root`](super::root)).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sample {
    pub site: &'static Site,
    pub weight: Weight,
    /// The bytes that the program asked for, and those of the block.
    pub requested: usize,
    pub usable: usize,
    /// The ordinary block that the heap would have given, held so that the heap keeps its shape; 0
    /// for none.
    pub proxy: usize,
    /// The record of the slab that holds the proxy; 0 without one.
    pub slab: usize,
    /// When it was allocated, in nanoseconds of the monotonic clock.
    pub born_ns: u64,
    /// The system's number of the thread that allocated it.
    pub thread: u32,
    pub arena: u16,
    /// The number of resets before it was taken.
    pub resets: u16,
}

impl Sample {
    /// Where its fields lie, in their order.
    #[cfg(test)]
    pub const OFFSETS: [usize; 10] = [
        offset_of!(Sample, site),
        offset_of!(Sample, weight),
        offset_of!(Sample, requested),
        offset_of!(Sample, usable),
        offset_of!(Sample, proxy),
        offset_of!(Sample, slab),
        offset_of!(Sample, born_ns),
        offset_of!(Sample, thread),
        offset_of!(Sample, arena),
        offset_of!(Sample, resets),
    ];

    /// What it stands for.
    pub fn amount(&self) -> Amount {
        Amount::of(self.weight, self.usable)
    }

    /// The requested bytes that it stands for.
    pub fn requested_bytes(&self) -> u64 {
        rounded(self.weight.times(self.requested))
    }
}

/// Words of the bitmap of a span.
const WORDS: usize = Class::MOST_REGIONS.div_ceil(64);

/// A run of pages for sampled blocks of one class. The samples follow the record, one for each
/// region; that of a free region is not initialised. Readers outside the process know its layout,
/// so a record of a span that is unmade is kept for the next span of its class.
#[repr(C)]
pub struct Span {
    addr: Cell<usize>,
    version: Version,
    /// As `shape` has them, for readers outside.
    regions: u32,
    /// The record that was made before this one.
    older: Option<&'static Span>,
    size: usize,
    /// A bit for each free region, and their number.
    free: [Cell<u64>; WORDS],
    free_count: Cell<usize>,
    class: Class,
    shape: &'static SlabShape,
    /// Its neighbours in the list of all spans of its class. Of a record without a span, `next` is
    /// another one.
    next: Cell<Option<&'static Span>>,
    prev: Cell<Option<&'static Span>>,
}

// SAFETY: the lock guards the cells.
unsafe impl Sync for Span {}

impl Span {
    /// Where its address, its version, the number of regions, the older record, the bytes of a
    /// region and the bitmap lie.
    #[cfg(test)]
    pub const OFFSETS: [usize; 6] = [
        offset_of!(Span, addr),
        offset_of!(Span, version),
        offset_of!(Span, regions),
        offset_of!(Span, older),
        offset_of!(Span, size),
        offset_of!(Span, free),
    ];

    fn record_bytes(shape: &SlabShape) -> usize {
        size_of::<Span>() + shape.regions as usize * size_of::<Sample>()
    }

    fn sample(&self, region: usize) -> *mut Sample {
        debug_assert!(region < self.shape.regions as usize);
        let first = core::ptr::from_ref(self).wrapping_add(1).cast::<Sample>();
        first.wrapping_add(region).cast_mut()
    }

    fn block(&self, region: usize) -> usize {
        self.addr.get() + region * self.shape.size as usize
    }

    fn bit(region: usize) -> (usize, u64) {
        (region / 64, 1 << (region % 64))
    }

    fn is_free(&self, region: usize) -> bool {
        let (word, bit) = Self::bit(region);
        self.free
            .get(word)
            .is_some_and(|free| free.get() & bit != 0)
    }

    /// The region of the block at `p`; ends the process if no block in use begins there.
    fn region_in_use(&self, p: usize) -> usize {
        let size = self.shape.size as usize;
        let offset = p - self.addr.get();
        let region = offset / size;
        if !offset.is_multiple_of(size) || region >= self.shape.regions as usize {
            die!("free of {p:#x}, which points inside a block of {size} bytes");
        }
        if self.is_free(region) {
            die!("double free of {p:#x}, a block of {size} bytes");
        }
        region
    }

    /// Takes a run of pages, with all regions free.
    fn begin(&self, addr: usize) {
        let regions = self.shape.regions as usize;
        self.version.change(|| {
            self.addr.set(addr);
            for (i, word) in self.free.iter().enumerate() {
                let used = regions.saturating_sub(i * 64).min(64);
                word.set(((1u128 << used) - 1) as u64);
            }
        });
        self.free_count.set(regions);
    }

    /// Takes a free region for this sample.
    fn enter(&self, region: usize, sample: Sample) {
        let (word, bit) = Self::bit(region);
        let free = &self.free[word % WORDS];
        self.version.change(|| {
            // SAFETY: the region was free: nothing else uses its sample.
            unsafe { self.sample(region).write(sample) };
            free.set(free.get() & !bit);
        });
        self.free_count.set(self.free_count.get() - 1);
    }

    /// Frees a region.
    fn leave(&self, region: usize) {
        let (word, bit) = Self::bit(region);
        let free = &self.free[word % WORDS];
        self.version.change(|| free.set(free.get() | bit));
        self.free_count.set(self.free_count.get() + 1);
    }

    /// The free bytes in pages that blocks keep from being returned, and the number of its blocks.
    #[cold]
    #[inline(never)]
    fn pinned(&self) -> (usize, usize) {
        let (size, regions) = (self.shape.size as usize, self.shape.regions as usize);
        let free = self.free_count.get();
        let mut bytes = free * size;
        for page in (0..regions * size).step_by(PAGE) {
            let end = (page + PAGE).min(regions * size);
            if (page / size..end.div_ceil(size)).all(|region| self.is_free(region)) {
                bytes = bytes.saturating_sub(end - page);
            }
        }
        (bytes, regions - free)
    }

    fn regions_in_use(&self) -> impl Iterator<Item = usize> {
        (0..self.shape.regions as usize).filter(|&region| !self.is_free(region))
    }
}

/// One list for each slab class, and one for none. Numbers of classes are taken modulo this, as it
/// saves a test of the bounds.
const SPAN_LISTS: usize = SLAB_CLASSES + 1;

struct Samples {
    /// The spans of each class; those with room come first.
    spans: [Option<&'static Span>; SPAN_LISTS],
    /// Records without a span.
    spare_spans: [Option<&'static Span>; SPAN_LISTS],
    /// The last record made.
    last_span: Option<&'static Span>,
    large: LargeTable,
}

// SAFETY: the pointers lead to records that only this structure refers to.
unsafe impl Send for Samples {}

static SAMPLES: Mutex<Samples> = Mutex::named(
    Rank::Samples,
    Samples {
        spans: [None; SPAN_LISTS],
        spare_spans: [None; SPAN_LISTS],
        last_span: None,
        large: LargeTable::new(),
    },
);

/// The number of times that all samples were forgotten.
static RESETS: AtomicUsize = AtomicUsize::new(0);

/// The number of resets, as samples have it.
pub fn resets() -> u16 {
    RESETS.load(Ordering::Relaxed) as u16
}

/// Forgets all samples taken so far: they have another number of resets.
pub fn forget_all() {
    let resets = RESETS.fetch_add(1, Ordering::Relaxed) + 1;
    root::set_resets(resets);
}

/// Live samples of small and of large blocks.
static SMALL: AtomicUsize = AtomicUsize::new(0);
static LARGE: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the small blocks that hold no proxy: no other statistic counts them.
static UNSEEN_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Pages of spans: no arena counts them.
static SPAN_PAGES: AtomicUsize = AtomicUsize::new(0);

/// The samples, locked. Not inlined: it has many callers, none of which needs speed.
#[inline(never)]
fn locked() -> Guard<'static, Samples> {
    SAMPLES.lock_seldom()
}

/// The lock, for forks.
pub fn lock() -> &'static RawLock {
    SAMPLES.raw()
}

/// The number of live samples.
pub fn count() -> usize {
    SMALL.load(Ordering::Relaxed) + LARGE.load(Ordering::Relaxed)
}

/// Whether any small block is sampled.
pub fn are_any_small() -> bool {
    SMALL.load(Ordering::Relaxed) > 0
}

/// Whether any large block is sampled.
pub fn are_any_large() -> bool {
    LARGE.load(Ordering::Relaxed) > 0
}

/// Bytes of sampled blocks in use that no other statistic counts.
pub fn unseen_bytes() -> usize {
    UNSEEN_BYTES.load(Ordering::Relaxed)
}

/// Pages of sampled blocks that no arena counts.
pub fn span_pages() -> usize {
    SPAN_PAGES.load(Ordering::Relaxed)
}

/// Takes a block of a slab class for this sample. `None` when memory is out.
#[inline(never)]
pub fn take(class: Class, sample: Sample) -> Option<usize> {
    let block = locked().take(class, sample)?;
    SMALL.fetch_add(1, Ordering::Relaxed);
    if sample.proxy == 0 {
        UNSEEN_BYTES.fetch_add(sample.usable, Ordering::Relaxed);
    }
    Some(block)
}

/// Frees the block at `p` of the span with this record, and returns its sample. Ends the process if
/// no block in use begins there.
pub fn free(record: usize, p: usize) -> Sample {
    let span = span_at(record);
    let mut samples = locked();
    let region = span.region_in_use(p);
    // SAFETY: the region is in use, so its sample is initialised; the lock is held.
    let sample = unsafe { span.sample(region).read() };
    let empty = samples.put(span, region);
    drop(samples);
    SMALL.fetch_sub(1, Ordering::Relaxed);
    if sample.proxy == 0 {
        UNSEEN_BYTES.fetch_sub(sample.usable, Ordering::Relaxed);
    }
    if let Some(span) = empty {
        unmake(span);
    }
    sample
}

/// The class and the sample of the block at `p` of the span with this record. Ends the process if
/// no block in use begins there.
pub fn look_up(record: usize, p: usize) -> (Class, Sample) {
    let span = span_at(record);
    let _samples = locked();
    let region = span.region_in_use(p);
    // SAFETY: the region is in use, so its sample is initialised; the lock is held.
    (span.class, unsafe { span.sample(region).read() })
}

fn span_at(record: usize) -> &'static Span {
    // SAFETY: the page map holds addresses of records of spans, and these are never unmapped.
    unsafe { &*(record as *const Span) }
}

impl Samples {
    fn take(&mut self, class: Class, sample: Sample) -> Option<usize> {
        let span =
            match self.spans[class.index() % SPAN_LISTS].filter(|span| span.free_count.get() > 0) {
                Some(span) => span,
                None => self.make(class)?,
            };
        let word = span.free.iter().position(|word| word.get() != 0)?;
        let bits = span.free[word % WORDS].get();
        let region = word * 64 + bits.trailing_zeros() as usize;
        span.enter(region, sample);
        if span.free_count.get() == 0 {
            self.move_behind(span);
        }
        Some(span.block(region))
    }

    /// Makes a span with all regions free. The caller holds the lock.
    #[inline(never)]
    fn make(&mut self, class: Class) -> Option<&'static Span> {
        let shape = class.shape();
        let pages = shape.pages as usize;
        let run = PAGE_HEAPS
            .all()
            .next()?
            .alloc_for(pages, pages, shape.align as usize)?;
        let Some(span) = self.span_record(class) else {
            PAGE_HEAPS.free(run.addr, pages);
            return None;
        };
        span.begin(run.addr);
        SPAN_PAGES.fetch_add(pages, Ordering::Relaxed);
        let record = PageRecord::Sampled(core::ptr::from_ref(span).addr());
        Segment::find(run.addr)?.describe(run.addr, pages, Class::NONE, record);
        self.link(span);
        Some(span)
    }

    /// A record for a span of the class.
    fn span_record(&mut self, class: Class) -> Option<&'static Span> {
        let spare = &mut self.spare_spans[class.index() % SPAN_LISTS];
        if let Some(span) = *spare {
            *spare = span.next.take();
            return Some(span);
        }
        let shape = class.shape();
        let record = meta::take_apart(Span::record_bytes(shape))?.cast::<Span>();
        // SAFETY: the record has room for the span and its samples, and nothing else uses it.
        let span: &'static Span = unsafe {
            record.write(Span {
                addr: Cell::new(0),
                version: Version::new(),
                regions: shape.regions.into(),
                older: self.last_span,
                size: shape.size as usize,
                free: [const { Cell::new(0) }; WORDS],
                free_count: Cell::new(0),
                class,
                shape,
                next: Cell::new(None),
                prev: Cell::new(None),
            });
            record.as_ref()
        };
        self.last_span = Some(span);
        root::set_last_span(span);
        Some(span)
    }

    /// Frees the region. Returns the span if it must be unmade, once the lock is free: it is empty,
    /// and the class has another with room.
    fn put(&mut self, span: &'static Span, region: usize) -> Option<&'static Span> {
        span.leave(region);
        if span.free_count.get() == 1 {
            self.unlink(span);
            self.link(span);
        }
        let is_empty = span.free_count.get() == span.shape.regions as usize;
        let first =
            self.spans[span.class.index() % SPAN_LISTS].filter(|first| first.free_count.get() > 0);
        let is_only = match first {
            Some(first) if core::ptr::eq(first, span) => span
                .next
                .get()
                .is_none_or(|next| next.free_count.get() == 0),
            Some(_) => false,
            None => true,
        };
        if !is_empty || is_only {
            return None;
        }
        self.unlink(span);
        Some(span)
    }

    /// Enters a span at the beginning of its class's list.
    fn link(&mut self, span: &'static Span) {
        let first = &mut self.spans[span.class.index() % SPAN_LISTS];
        span.prev.set(None);
        span.next.set(*first);
        if let Some(next) = *first {
            next.prev.set(Some(span));
        }
        *first = Some(span);
    }

    fn unlink(&mut self, span: &'static Span) {
        match span.prev.get() {
            Some(prev) => prev.next.set(span.next.get()),
            None => self.spans[span.class.index() % SPAN_LISTS] = span.next.get(),
        }
        if let Some(next) = span.next.get() {
            next.prev.set(span.prev.get());
        }
    }

    /// Moves a span without room, which is the first of its list, behind those with room.
    fn move_behind(&mut self, span: &'static Span) {
        let mut before = None;
        let mut at = span.next.get();
        while let Some(next) = at.filter(|next| next.free_count.get() > 0) {
            before = Some(next);
            at = next.next.get();
        }
        let Some(before) = before else {
            return;
        };
        self.unlink(span);
        span.prev.set(Some(before));
        span.next.set(before.next.replace(Some(span)));
        if let Some(next) = span.next.get() {
            next.prev.set(Some(span));
        }
    }
}

/// Unmakes an empty span that is in no list, and keeps its record.
#[cold]
fn unmake(span: &'static Span) {
    let (addr, pages) = (span.addr.get(), span.shape.pages as usize);
    if let Some(segment) = Segment::find(addr) {
        segment.describe(addr, pages, Class::NONE, PageRecord::None);
    }
    PAGE_HEAPS.free(addr, pages);
    SPAN_PAGES.fetch_sub(pages, Ordering::Relaxed);
    let mut samples = locked();
    let spare = &mut samples.spare_spans[span.class.index() % SPAN_LISTS];
    span.next.set(spare.replace(span));
}

/// Calls `f` with the address and the sample of each sampled block, under the lock: `f` must be
/// short, and takes no lock of the same rank or an earlier one.
pub fn each(mut f: impl FnMut(usize, &Sample)) {
    let f = &mut |block, _: Option<&Span>, sample: &Sample| f(block, sample);
    (0..=SLAB_CLASSES + 1).for_each(|part| each_of(part, f));
}

/// Like [`each`], for the blocks of the slab class with this number, or, for the number after the
/// last one, for large blocks. `f` is told the span, too.
#[inline(never)]
fn each_of(part: usize, f: &mut dyn FnMut(usize, Option<&Span>, &Sample)) {
    let samples = locked();
    let mut at = samples.spans.get(part).copied().flatten();
    while let Some(span) = at {
        for region in span.regions_in_use() {
            // SAFETY: the region is in use, so its sample is initialised; the lock is held.
            f(span.block(region), Some(span), unsafe {
                &*span.sample(region)
            });
        }
        at = span.next.get();
    }
    if part <= SLAB_CLASSES {
        return;
    }
    samples
        .large
        .each(&mut |block, sample| f(block, None, sample));
}
