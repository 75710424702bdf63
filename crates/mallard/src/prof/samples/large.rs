//! The samples of large blocks: a table by address, which the lock of the samples guards.

use super::{LARGE, Sample, locked};
use crate::prof::root::{self, Version};
use crate::space::meta;
use crate::sys::atomic::Ordering;
use crate::sys::page::PAGE;
use core::cell::Cell;
use core::mem::MaybeUninit;
#[cfg(test)]
use core::mem::offset_of;
use core::ptr::NonNull;

/// A large block's sample in the table of addresses. Readers outside the process know its layout,
/// so a record that is not in the table is kept for the next large block.
#[repr(C)]
pub struct Large {
    /// The block's address; 0 if the record is not in the table.
    at: Cell<usize>,
    version: Version,
    /// The record that was made before this one.
    older: Option<&'static Large>,
    /// Only initialised while the record is in the table.
    sample: Cell<MaybeUninit<Sample>>,
    /// The next in the same bucket. Of a record that is not in the table, another such one.
    next: Cell<Option<&'static Large>>,
}

// SAFETY: the lock guards the cells.
unsafe impl Sync for Large {}

impl Large {
    /// Where its address, its version, the older record and the sample lie.
    #[cfg(test)]
    pub const OFFSETS: [usize; 4] = [
        offset_of!(Large, at),
        offset_of!(Large, version),
        offset_of!(Large, older),
        offset_of!(Large, sample),
    ];

    /// The sample of a record that is in the table. The caller holds the lock.
    fn sample(&self) -> Sample {
        debug_assert_ne!(self.at.get(), 0);
        // SAFETY: the record is in the table.
        unsafe { self.sample.get().assume_init() }
    }
}

type Bucket = Cell<Option<&'static Large>>;

/// Buckets of the first table of addresses.
const FIRST_BUCKETS: usize = 64;

/// The table.
pub struct LargeTable {
    buckets: Option<NonNull<Bucket>>,
    /// A power of two, or 0.
    bucket_count: usize,
    count: usize,
    /// Records that are not in the table, and the last record made.
    spare: Option<&'static Large>,
    last: Option<&'static Large>,
}

impl LargeTable {
    pub const fn new() -> LargeTable {
        LargeTable {
            buckets: None,
            bucket_count: 0,
            count: 0,
            spare: None,
            last: None,
        }
    }

    /// A record for a large block.
    fn record(&mut self) -> Option<&'static Large> {
        if let Some(large) = self.spare {
            self.spare = large.next.take();
            return Some(large);
        }
        let record = meta::take(size_of::<Large>())?.cast::<Large>();
        // SAFETY: the record has room, and nothing else uses it.
        let large: &'static Large = unsafe {
            record.write(Large {
                at: Cell::new(0),
                version: Version::new(),
                older: self.last,
                sample: Cell::new(MaybeUninit::uninit()),
                next: Cell::new(None),
            });
            record.as_ref()
        };
        self.last = Some(large);
        root::set_last_large(large);
        Some(large)
    }

    fn bucket(&self, at: usize) -> Option<&Bucket> {
        let i = (at / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let i = i & self.bucket_count.wrapping_sub(1);
        // SAFETY: there are `bucket_count` buckets, a power of two; they belong to this structure.
        self.buckets.map(|first| unsafe { first.add(i).as_ref() })
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
        // Zero is no record.
        self.buckets = Some(room.cast());
        self.bucket_count = count;
        let (Some(first), count) = old else {
            return;
        };
        for i in 0..count {
            // SAFETY: there were `count` buckets.
            let mut at = unsafe { first.add(i).as_ref() }.get();
            while let Some(large) = at {
                at = large.next.get();
                if let Some(bucket) = self.bucket(large.at.get()) {
                    large.next.set(bucket.replace(Some(large)));
                }
            }
        }
        // SAFETY: the old buckets were taken with this size, and nothing refers to them.
        unsafe { meta::give(first.cast(), count * size_of::<Bucket>()) };
    }

    /// Calls `f` with each address and its sample.
    pub fn each(&self, f: &mut dyn FnMut(usize, &Sample)) {
        let Some(first) = self.buckets else {
            return;
        };
        for i in 0..self.bucket_count {
            // SAFETY: there are so many buckets, which belong to the table.
            let mut at = unsafe { first.add(i).as_ref() }.get();
            while let Some(large) = at {
                f(large.at.get(), &large.sample());
                at = large.next.get();
            }
        }
    }
}

/// Enters the sample of a large block. Returns whether there was memory for it.
#[inline(never)]
pub fn enter_large(at: usize, sample: Sample) -> bool {
    let mut samples = locked();
    let table = &mut samples.large;
    if table.count >= table.bucket_count {
        table.grow();
    }
    if table.bucket_count == 0 {
        return false;
    }
    let Some(large) = table.record() else {
        return false;
    };
    large.version.change(|| {
        large.sample.set(MaybeUninit::new(sample));
        large.at.set(at);
    });
    if let Some(bucket) = table.bucket(at) {
        large.next.set(bucket.replace(Some(large)));
    }
    table.count += 1;
    LARGE.store(table.count, Ordering::Relaxed);
    true
}

/// Removes and returns the sample of the large block at this address.
#[inline(never)]
pub fn leave_large(at: usize) -> Option<Sample> {
    let mut samples = locked();
    let table = &mut samples.large;
    let mut link = table.bucket(at)?;
    let large = loop {
        let large = link.get()?;
        if large.at.get() == at {
            link.set(large.next.get());
            break large;
        }
        link = &large.next;
    };
    let sample = large.sample();
    large.version.change(|| large.at.set(0));
    large.next.set(table.spare.replace(large));
    table.count -= 1;
    LARGE.store(table.count, Ordering::Relaxed);
    Some(sample)
}
