//! The sampled blocks, and what is known of each.
//!
//! A sampled block stays where it is. The page map files it under no class, so that a free of it
//! takes the slow path: a large block has a bit in its page record; for a block of a slab, the page
//! where it begins is filed under no class, and its record says where in the page that is
//! ([`PageRecord::Watched`]). Frees of other blocks that begin there take the slow path, too, which
//! tells them apart: at the default distance between samples one in 128.
//!
//! The samples are in a table of addresses. One lock guards it.
//!
//! [`PageRecord::Watched`]: crate::space::segment::PageRecord::Watched

mod groups;

use super::gap::{Weight, rounded};
use super::root::{self, Version, promised};
use super::sites::{Amount, Site};
use crate::arena::{self, Mark};
use crate::space::meta;
use crate::space::segment::see_anew;
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::rank::Rank;
use crate::sys::spread::SPREAD_FACTOR;
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
pub use groups::{SampleGroup, SampleGroups, groups};
use mallard_formats::records;

/// What is known of a sampled block. Readers outside the process know its layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sample {
    pub site: &'static Site,
    pub weight: Weight,
    /// The bytes that the program asked for, and those of the block.
    pub requested: usize,
    pub usable: usize,
    /// The record of the slab that holds the block, and its number of regions; 0 outside slabs.
    pub slab: usize,
    pub regions: u32,
    /// The system's number of the thread that allocated it, which another thread may have by now.
    pub tid: u32,
    /// When it was allocated, in nanoseconds of the monotonic clock.
    pub born_ns: u64,
    /// The profiler's number of that thread, which no other thread ever has.
    pub thread: u32,
    pub arena: u16,
    /// The number of resets before it was taken.
    pub resets: u16,
}

promised!(Sample as records::Sample:
    site, weight, requested, usable, slab, regions, tid, born_ns, thread, arena, resets);

impl Sample {
    /// The blocks and bytes that the sample stands for.
    pub fn amount(&self) -> Amount {
        Amount::of(self.weight, self.usable)
    }

    /// The requested bytes that it stands for.
    pub fn requested_bytes(&self) -> u64 {
        rounded(self.weight.times(self.requested))
    }
}

/// A block's sample in the table. Readers outside the process know its layout, so a record that is
/// not in the table is kept for the next sample.
#[repr(C)]
pub struct Entry {
    /// The block's address; 0 if the record is not in the table.
    at: Cell<usize>,
    version: Version,
    /// The record that was made before this one.
    older: Option<&'static Entry>,
    /// Only initialised while the record is in the table.
    sample: Cell<MaybeUninit<Sample>>,
    /// The next in the same bucket. Of a record that is not in the table, another such one.
    next: Cell<Option<&'static Entry>>,
}

promised!(Entry as records::Entry: at, version, older, sample, next);
const _: () = assert!(size_of::<Entry>().is_multiple_of(records::ALIGN_BYTES));

// SAFETY: the lock guards the cells.
unsafe impl Sync for Entry {}

impl Entry {
    /// The sample of a record that is in the table. The caller holds the lock.
    fn sample(&self) -> Sample {
        debug_assert_ne!(self.at.get(), 0);
        // SAFETY: the record is in the table.
        unsafe { self.sample.get().assume_init() }
    }
}

type Bucket = Cell<Option<&'static Entry>>;

/// Buckets of the first table.
const FIRST_BUCKETS: usize = 64;
/// Records that are made at once: a multiple of a cache line of memory.
const ENTRIES_AT_ONCE: usize = 32;

struct Samples {
    buckets: Option<NonNull<Bucket>>,
    /// A power of two, or 0.
    bucket_count: usize,
    count: usize,
    /// Records that are not in the table, and the last record made.
    spare: Option<&'static Entry>,
    last: Option<&'static Entry>,
    /// Memory for this many further records.
    room: *mut Entry,
    room_count: usize,
}

// SAFETY: the pointers lead to memory that only this structure refers to.
unsafe impl Send for Samples {}

static SAMPLES: Mutex<Samples> = Mutex::named(
    Rank::Samples,
    Samples {
        buckets: None,
        bucket_count: 0,
        count: 0,
        spare: None,
        last: None,
        room: core::ptr::null_mut(),
        room_count: 0,
    },
);

/// The number of times that all samples were forgotten.
static RESETS: AtomicUsize = AtomicUsize::new(0);
/// Live samples, and whether there ever were any.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static WERE_ANY: AtomicBool = AtomicBool::new(false);

/// The number of resets, as samples have it.
pub fn resets() -> u16 {
    RESETS.load(Ordering::Relaxed) as u16
}

/// Forgets all samples taken so far: they have another number of resets.
pub fn forget_all() {
    let resets = RESETS.fetch_add(1, Ordering::Relaxed) + 1;
    root::set_resets(resets);
}

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
    COUNT.load(Ordering::Relaxed)
}

/// Whether a block may be, or be beside, a sampled one, whose page was found filed under no class.
#[inline(always)]
pub fn were_any() -> bool {
    see_anew();
    WERE_ANY.load(Ordering::Relaxed)
}

/// Enters the sample of the block at this address, and marks the page map if it lies in a slab.
/// Returns whether there was memory for it.
#[inline(never)]
pub fn enter(at: usize, sample: Sample) -> bool {
    WERE_ANY.store(true, Ordering::Relaxed);
    let mut samples = locked();
    if samples.count >= samples.bucket_count {
        samples.grow();
    }
    if samples.bucket_count == 0 {
        return false;
    }
    let Some(entry) = samples.record() else {
        return false;
    };
    entry.version.change(|| {
        entry.sample.set(MaybeUninit::new(sample));
        entry.at.set(at);
    });
    if let Some(bucket) = samples.bucket(at) {
        entry.next.set(bucket.replace(Some(entry)));
    }
    if sample.slab != 0 {
        arena::watch(at, Mark::Sampled);
    }
    samples.count += 1;
    COUNT.store(samples.count, Ordering::Relaxed);
    true
}

/// Removes and returns the sample of the block at this address, if it has one.
#[inline(never)]
pub fn leave(at: usize) -> Option<Sample> {
    let mut samples = locked();
    let link = samples.link(at)?;
    let entry = link.get()?;
    link.set(entry.next.get());
    let sample = entry.sample();
    entry.version.change(|| entry.at.set(0));
    entry.next.set(samples.spare.replace(entry));
    if sample.slab != 0 {
        arena::watch(at, Mark::Ordinary);
    }
    samples.count -= 1;
    COUNT.store(samples.count, Ordering::Relaxed);
    Some(sample)
}

/// Whether the block at this address has a sample.
#[inline(never)]
pub fn has(at: usize) -> bool {
    locked().link(at).is_some()
}

impl Samples {
    /// A record for a sample.
    fn record(&mut self) -> Option<&'static Entry> {
        if let Some(entry) = self.spare {
            self.spare = entry.next.take();
            return Some(entry);
        }
        if self.room_count == 0 {
            let room = meta::take(ENTRIES_AT_ONCE * size_of::<Entry>())?;
            (self.room, self.room_count) = (room.as_ptr().cast(), ENTRIES_AT_ONCE);
        }
        self.room_count -= 1;
        // SAFETY: there is memory for this many records, which nothing else uses.
        let entry: &'static Entry = unsafe {
            let record = self.room.add(self.room_count);
            record.write(Entry {
                at: Cell::new(0),
                version: Version::new(),
                older: self.last,
                sample: Cell::new(MaybeUninit::uninit()),
                next: Cell::new(None),
            });
            &*record
        };
        self.last = Some(entry);
        root::set_last_sample(entry);
        Some(entry)
    }

    fn bucket(&self, at: usize) -> Option<&Bucket> {
        // The upper bits of the product depend on all of the address.
        let i = at.wrapping_mul(SPREAD_FACTOR as usize) >> 32;
        let i = i & self.bucket_count.wrapping_sub(1);
        // SAFETY: there are `bucket_count` buckets, a power of two; they belong to this structure.
        self.buckets.map(|first| unsafe { first.add(i).as_ref() })
    }

    /// The link that leads to the entry of the block at this address, if there is one.
    fn link(&self, at: usize) -> Option<&Bucket> {
        let mut link = self.bucket(at)?;
        loop {
            let entry = link.get()?;
            if entry.at.get() == at {
                return Some(link);
            }
            link = &entry.next;
        }
    }

    /// Doubles the buckets. Without memory, the table goes on with those that it has.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let count = (self.bucket_count * 2).max(FIRST_BUCKETS);
        let Some(room) = meta::take_apart(count * size_of::<Bucket>()) else {
            return;
        };
        let old = (self.buckets, self.bucket_count);
        // Zero stands for no record.
        self.buckets = Some(room.cast());
        self.bucket_count = count;
        let (Some(first), count) = old else {
            return;
        };
        for i in 0..count {
            // SAFETY: there were `count` buckets.
            let mut at = unsafe { first.add(i).as_ref() }.get();
            while let Some(entry) = at {
                at = entry.next.get();
                if let Some(bucket) = self.bucket(entry.at.get()) {
                    entry.next.set(bucket.replace(Some(entry)));
                }
            }
        }
        // SAFETY: the old buckets were taken with this size, and nothing refers to them.
        unsafe { meta::give(first.cast(), count * size_of::<Bucket>()) };
    }
}

/// Calls `f` with the address and the sample of each sampled block, under the lock: `f` must be
/// short, and takes no lock of the same rank or an earlier one. Samples that come or go meanwhile
/// may be missed.
#[inline(never)]
pub fn each(f: &mut dyn FnMut(usize, &Sample)) {
    /// Samples for which the lock is held once, so that no thread waits long.
    const BATCH_SAMPLES: usize = 256;
    let mut next = locked().last;
    while next.is_some() {
        let _samples = locked();
        for _ in 0..BATCH_SAMPLES {
            let Some(entry) = next else {
                return;
            };
            if entry.at.get() != 0 {
                f(entry.at.get(), &entry.sample());
            }
            next = entry.older;
        }
    }
}
