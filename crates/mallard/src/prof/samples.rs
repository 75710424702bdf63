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

use super::gap::{Weight, rounded};
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
use core::ptr::NonNull;

/// What is known of a sampled block.
#[derive(Clone, Copy)]
pub struct Sample {
    pub site: &'static Site,
    pub weight: Weight,
    /// The bytes that the program asked for, and those of the block.
    pub requested: usize,
    pub usable: usize,
    /// The ordinary block that the heap would have given, held so that the heap keeps its shape; 0
    /// for none.
    pub proxy: usize,
    /// When it was allocated, in milliseconds of the monotonic clock.
    pub born_ms: u64,
    /// The system's number of the thread that allocated it.
    pub thread: u32,
    pub arena: u16,
    /// The number of resets before it was taken.
    pub resets: u16,
}

impl Sample {
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
/// region; that of a free region is not initialised.
#[repr(C)]
struct Span {
    addr: usize,
    class: Class,
    shape: &'static SlabShape,
    /// The number of free regions, and a bit for each.
    free_count: Cell<usize>,
    free: [Cell<u64>; WORDS],
    /// Its neighbours in the list of all spans of its class.
    next: Cell<Option<&'static Span>>,
    prev: Cell<Option<&'static Span>>,
}

// SAFETY: the lock guards the cells.
unsafe impl Sync for Span {}

impl Span {
    fn record_bytes(shape: &SlabShape) -> usize {
        size_of::<Span>() + shape.regions as usize * size_of::<Sample>()
    }

    fn sample(&self, region: usize) -> *mut Sample {
        debug_assert!(region < self.shape.regions as usize);
        let first = core::ptr::from_ref(self).wrapping_add(1).cast::<Sample>();
        first.wrapping_add(region).cast_mut()
    }

    fn block(&self, region: usize) -> usize {
        self.addr + region * self.shape.size as usize
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
        let offset = p - self.addr;
        let region = offset / size;
        if !offset.is_multiple_of(size) || region >= self.shape.regions as usize {
            die!("free of {p:#x}, which points inside a block of {size} bytes");
        }
        if self.is_free(region) {
            die!("double free of {p:#x}, a block of {size} bytes");
        }
        region
    }

    fn regions_in_use(&self) -> impl Iterator<Item = usize> {
        (0..self.shape.regions as usize).filter(|&region| !self.is_free(region))
    }
}

/// One list for each slab class, and one for none. Numbers of classes are taken modulo this, as it
/// saves a test of the bounds.
const SPAN_LISTS: usize = SLAB_CLASSES + 1;

/// A large block's sample in the table of addresses.
struct Node {
    at: usize,
    sample: Sample,
    next: Option<NonNull<Node>>,
}

/// Buckets of the first table of addresses.
const FIRST_BUCKETS: usize = 64;

struct Samples {
    /// The spans of each class; those with room come first.
    spans: [Option<&'static Span>; SPAN_LISTS],
    /// The samples of large blocks, by address.
    buckets: Option<NonNull<Option<NonNull<Node>>>>,
    bucket_count: usize,
    large: usize,
}

// SAFETY: the pointers lead to records that only this structure refers to.
unsafe impl Send for Samples {}

static SAMPLES: Mutex<Samples> = Mutex::named(
    Rank::Samples,
    Samples {
        spans: [None; SPAN_LISTS],
        buckets: None,
        bucket_count: 0,
        large: 0,
    },
);

/// Live samples of small and of large blocks.
static SMALL: AtomicUsize = AtomicUsize::new(0);
static LARGE: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the small blocks that hold no proxy: no other statistic counts them.
static UNSEEN_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The samples, locked. Not inlined: it has many callers, none of which needs speed.
#[inline(never)]
fn locked() -> Guard<'static, Samples> {
    SAMPLES.lock()
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
        span.free[word % WORDS].set(bits & (bits - 1));
        let region = word * 64 + bits.trailing_zeros() as usize;
        // SAFETY: the region was free: nothing else uses its sample.
        unsafe { span.sample(region).write(sample) };
        span.free_count.set(span.free_count.get() - 1);
        if span.free_count.get() == 0 {
            self.move_behind(span);
        }
        Some(span.block(region))
    }

    /// Makes a span with all regions free. The caller holds the lock.
    #[inline(never)]
    fn make(&mut self, class: Class) -> Option<&'static Span> {
        let shape = class.shape();
        let (pages, regions) = (shape.pages as usize, shape.regions as usize);
        let run = PAGE_HEAPS
            .all()
            .next()?
            .alloc_for(pages, pages, shape.align as usize)?;
        let Some(record) = meta::take_apart(Span::record_bytes(shape)) else {
            PAGE_HEAPS.free(run.addr, pages);
            return None;
        };
        let span = record.cast::<Span>();
        // SAFETY: the record has room for the span and its samples, and nothing else uses it.
        let span: &'static Span = unsafe {
            span.write(Span {
                addr: run.addr,
                class,
                shape,
                free_count: Cell::new(regions),
                free: [const { Cell::new(0) }; WORDS],
                next: Cell::new(None),
                prev: Cell::new(None),
            });
            span.as_ref()
        };
        for (i, word) in span.free.iter().enumerate() {
            let used = regions.saturating_sub(i * 64).min(64);
            word.set(((1u128 << used) - 1) as u64);
        }
        let record = PageRecord::Sampled(core::ptr::from_ref(span).addr());
        Segment::find(run.addr)?.describe(run.addr, pages, Class::NONE, record);
        self.link(span);
        Some(span)
    }

    /// Frees the region. Returns the span if it must be unmade, once the lock is free: it is empty,
    /// and the class has another with room.
    fn put(&mut self, span: &'static Span, region: usize) -> Option<&'static Span> {
        let (word, bit) = Span::bit(region);
        span.free[word % WORDS].set(span.free[word % WORDS].get() | bit);
        span.free_count.set(span.free_count.get() + 1);
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

    fn bucket(&mut self, at: usize) -> Option<&mut Option<NonNull<Node>>> {
        let i = (at / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let i = i & self.bucket_count.wrapping_sub(1);
        // SAFETY: there are `bucket_count` buckets, a power of two; they belong to this structure.
        self.buckets.map(|first| unsafe { first.add(i).as_mut() })
    }

    /// Doubles the buckets. Without memory, the table goes on with those that it has.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        type Bucket = Option<NonNull<Node>>;
        let count = (self.bucket_count * 2).max(FIRST_BUCKETS);
        let Some(room) = meta::take_apart(count * size_of::<Bucket>()) else {
            return;
        };
        let old = (self.buckets, self.bucket_count);
        // Zero is no node.
        self.buckets = Some(room.cast());
        self.bucket_count = count;
        let (Some(first), count) = old else {
            return;
        };
        for i in 0..count {
            // SAFETY: there were `count` buckets.
            let mut at = unsafe { first.add(i).read() };
            while let Some(mut node) = at {
                // SAFETY: nodes in the table belong to it.
                let node = unsafe { node.as_mut() };
                at = node.next;
                let here = NonNull::from(&mut *node);
                if let Some(bucket) = self.bucket(node.at) {
                    node.next = bucket.replace(here);
                }
            }
        }
        // SAFETY: the old buckets were taken with this size, and nothing refers to them.
        unsafe { meta::give(first.cast(), count * size_of::<Bucket>()) };
    }
}

/// Unmakes an empty span that is in no list.
#[cold]
fn unmake(span: &'static Span) {
    let (addr, shape) = (span.addr, span.shape);
    let pages = shape.pages as usize;
    if let Some(segment) = Segment::find(addr) {
        segment.describe(addr, pages, Class::NONE, PageRecord::None);
    }
    let record = NonNull::from(span).cast::<u8>();
    // SAFETY: the record was taken with this size; no block of the span is in use, so nothing
    // refers to it.
    unsafe { meta::give(record, Span::record_bytes(shape)) };
    PAGE_HEAPS.free(addr, pages);
}

/// Enters the sample of a large block. Returns whether there was memory for it.
#[inline(never)]
pub fn enter_large(at: usize, sample: Sample) -> bool {
    let Some(room) = meta::take(size_of::<Node>()) else {
        return false;
    };
    let mut samples = locked();
    if samples.large >= samples.bucket_count {
        samples.grow();
    }
    let node = room.cast::<Node>();
    let Some(bucket) = samples.bucket(at) else {
        drop(samples);
        // SAFETY: taken above with this size.
        unsafe { meta::give(room, size_of::<Node>()) };
        return false;
    };
    let next = bucket.replace(node);
    // SAFETY: the record has room for a node, and nothing reads it before the lock is free.
    unsafe { node.write(Node { at, sample, next }) };
    samples.large += 1;
    LARGE.store(samples.large, Ordering::Relaxed);
    true
}

/// Removes and returns the sample of the large block at this address.
#[inline(never)]
pub fn leave_large(at: usize) -> Option<Sample> {
    let mut samples = locked();
    let mut link = core::ptr::from_mut(samples.bucket(at)?);
    let node = loop {
        // SAFETY: a bucket, or the link of a node; both belong to the table, whose lock is held.
        let node = unsafe { (*link)? };
        let node_at = node.as_ptr();
        // SAFETY: nodes in the table belong to it.
        if unsafe { (*node_at).at } == at {
            break node;
        }
        // SAFETY: as above.
        link = unsafe { &raw mut (*node_at).next };
    };
    // SAFETY: as above.
    let sample = unsafe {
        *link = (*node.as_ptr()).next;
        (*node.as_ptr()).sample
    };
    samples.large -= 1;
    LARGE.store(samples.large, Ordering::Relaxed);
    drop(samples);
    // SAFETY: the node was taken with this size, and has left the table.
    unsafe { meta::give(node.cast(), size_of::<Node>()) };
    Some(sample)
}

/// Calls `f` with the address and the sample of each sampled block, under the lock: `f` must be
/// short, and takes no lock of the same rank or an earlier one.
pub fn each(mut f: impl FnMut(usize, &Sample)) {
    (0..=SLAB_CLASSES + 1).for_each(|part| each_of(part, &mut f));
}

/// Like [`each`], for the blocks of the slab class with this number, or, for the number after the
/// last one, for large blocks.
#[inline(never)]
fn each_of(part: usize, f: &mut dyn FnMut(usize, &Sample)) {
    let samples = locked();
    let mut at = samples.spans.get(part).copied().flatten();
    while let Some(span) = at {
        for region in span.regions_in_use() {
            // SAFETY: the region is in use, so its sample is initialised; the lock is held.
            f(span.block(region), unsafe { &*span.sample(region) });
        }
        at = span.next.get();
    }
    if part <= SLAB_CLASSES {
        return;
    }
    let buckets = samples.buckets.map_or(0, |_| samples.bucket_count);
    for i in 0..buckets {
        // SAFETY: there are so many buckets, which belong to the table.
        let mut at = samples
            .buckets
            .and_then(|first| unsafe { *first.add(i).as_ref() });
        while let Some(node) = at {
            // SAFETY: nodes in the table belong to it, and the lock is held.
            let node = unsafe { node.as_ref() };
            f(node.at, &node.sample);
            at = node.next;
        }
    }
}

/// Equal samples of one site.
#[derive(Clone, Copy)]
pub struct Row {
    pub site: &'static Site,
    pub weight: Weight,
    pub usable: usize,
    pub requested: usize,
    pub thread: u32,
    pub arena: u16,
    pub count: u32,
}

/// A copy of all samples, in metadata memory.
pub struct Rows {
    first: NonNull<Row>,
    room: usize,
    len: usize,
}

/// The most samples that are copied: with more, a profile would be long and its making slow.
const ROWS_MAX: usize = 200_000;

/// Copies all samples, those of one class at a time. `None` if there are too many, or memory is
/// out.
pub fn rows() -> Option<Rows> {
    // Some more, for those that come meanwhile.
    let room = count() + count() / 8 + 64;
    if room > ROWS_MAX {
        return None;
    }
    let first = meta::take(room * size_of::<Row>())?.cast();
    let mut rows = Rows {
        first,
        room,
        len: 0,
    };
    for part in 0..=SLAB_CLASSES + 1 {
        each_of(part, &mut |_, sample| rows.push(sample));
    }
    Some(rows)
}

impl Rows {
    fn push(&mut self, sample: &Sample) {
        let row = Row {
            site: sample.site,
            weight: sample.weight,
            usable: sample.usable,
            requested: sample.requested,
            thread: sample.thread,
            arena: sample.arena,
            count: 1,
        };
        if let Some(last) = self.len.checked_sub(1) {
            // SAFETY: so many rows are written.
            let last = unsafe { self.first.add(last).as_mut() };
            let is_same = core::ptr::eq(last.site, row.site)
                && (last.weight, last.usable, last.requested)
                    == (row.weight, row.usable, row.requested)
                && (last.thread, last.arena) == (row.thread, row.arena);
            if is_same {
                last.count += 1;
                return;
            }
        }
        if self.len < self.room {
            // SAFETY: the record has room for so many rows.
            unsafe { self.first.add(self.len).write(row) };
            self.len += 1;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        // SAFETY: so many rows are written.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }.iter()
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.first.cast(), self.room * size_of::<Row>()) };
    }
}
