//! The call stacks that sampled blocks come from, and what each holds.
//!
//! A *site* is a stack of return addresses with its counters. Sites live in a hash table; a site is
//! never freed, so readers may follow pointers without a lock, in this process and from others.
//! One lock guards the table and all counters: samples are rare, and one lock makes the peak exact.
//!
//! The peak is kept without copying. `epoch` advances whenever the sum of live bytes reaches a new
//! maximum. A site that is about to change and has not done so since then first saves its amount:
//! that was its amount at the peak.

use super::gap::{Weight, rounded};
use super::root::{self, Version, promised};
use crate::space::meta;
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::published::Published;
use crate::sys::rank::Rank;
use core::cell::Cell;
use core::ptr::NonNull;
use mallard_formats::records;

/// Buckets of the first table.
const FIRST_BUCKETS: usize = 256;

/// The one frame of the site that stands for all stacks for which there was no room.
pub const MORE: usize = records::MORE as usize;

/// Sums over samples: the blocks in units of 2^-20, and the bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Amount {
    blocks: u64,
    bytes: u64,
}

impl Amount {
    pub const NONE: Amount = Amount {
        blocks: 0,
        bytes: 0,
    };

    /// What a sample of this weight stands for, with `bytes` bytes in each block.
    pub fn of(weight: Weight, bytes: usize) -> Amount {
        Amount {
            blocks: weight.times(1) as u64,
            bytes: rounded(weight.times(bytes)),
        }
    }

    pub fn blocks(self) -> u64 {
        rounded(self.blocks as u128)
    }

    pub fn bytes(self) -> u64 {
        self.bytes
    }

    pub fn is_none(self) -> bool {
        self == Amount::NONE
    }

    pub fn plus(self, other: Amount) -> Amount {
        Amount {
            blocks: self.blocks.wrapping_add(other.blocks),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    pub fn times(self, n: u64) -> Amount {
        Amount {
            blocks: self.blocks.wrapping_mul(n),
            bytes: self.bytes.wrapping_mul(n),
        }
    }

    pub fn minus(self, other: Amount) -> Amount {
        Amount {
            blocks: self.blocks.wrapping_sub(other.blocks),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

/// A call stack and its counters, which the table's lock guards. The addresses follow the record.
#[repr(C)]
pub struct Site {
    hash: u64,
    frames: u32,
    version: Version,
    /// The next site in the same bucket.
    next: Cell<Option<&'static Site>>,
    /// The site made next, which readers outside the process find by this.
    later: Published<Site>,
    live: Cell<Amount>,
    ever: Cell<Amount>,
    /// The bytes that programs asked for of the live blocks.
    requested: Cell<u64>,
    /// The amount at the peak, if the site changed since then.
    peak: Cell<Amount>,
    /// The epoch as of the last change.
    epoch: Cell<u64>,
    /// The blocks that were freed, and the sum of the milliseconds that they lived.
    freed: Cell<u64>,
    lived_ms: Cell<u64>,
}

promised!(Site as records::Site:
    frames, version, later, live, ever, requested, peak, epoch, freed, lived_ms);
promised!(Amount as records::Amount: blocks, bytes);

// SAFETY: the table's lock guards the cells; the rest never changes.
unsafe impl Sync for Site {}

impl Site {
    /// The stack's return addresses, the innermost first. None for samples without a stack.
    pub fn frames(&self) -> &'static [usize] {
        // SAFETY: the record was made with this many addresses behind it, and lives for ever.
        unsafe {
            let first = core::ptr::from_ref(self).add(1).cast::<usize>();
            core::slice::from_raw_parts(first, self.frames as usize)
        }
    }

    /// Whether the site stands for all stacks for which there was no room.
    pub fn is_of_more(&self) -> bool {
        self.frames() == [MORE]
    }
}

/// What a site holds.
#[derive(Clone, Copy)]
pub struct SiteTotals {
    pub live: Amount,
    pub ever: Amount,
    pub peak: Amount,
    /// The bytes that programs asked for of the live blocks.
    pub requested: u64,
    /// The blocks that were freed, and the sum of the milliseconds that they lived.
    pub freed: u64,
    pub lived_ms: u64,
}

pub struct Table {
    buckets: Option<NonNull<Cell<Option<&'static Site>>>>,
    /// A power of two, or 0.
    bucket_count: usize,
    first: Option<&'static Site>,
    last: Option<&'static Site>,
    count: usize,
    /// Bytes of all records.
    bytes: usize,
    live: Amount,
    ever: Amount,
    most_bytes: u64,
    /// The number of times that the live bytes reached a new maximum.
    epoch: u64,
    told: Told,
}

/// Whether readers outside the process can find the table: those of tests stay hidden.
struct Told(bool);

impl Told {
    fn first_site(&self, site: &'static Site) {
        if self.0 {
            root::set_first_site(site);
        }
    }

    fn epoch(&self, epoch: u64) {
        if self.0 {
            root::set_epoch(epoch);
        }
    }
}

// SAFETY: the pointers lead to records that live for ever, and the lock guards them.
unsafe impl Send for Table {}

static SITES: Mutex<Table> = Mutex::named(Rank::Sites, Table::new(Told(true)));

/// The lock, for forks.
pub fn lock() -> &'static RawLock {
    SITES.raw()
}

/// The table, locked. Not inlined: it has many callers, none of which needs speed.
#[inline(never)]
pub fn table() -> Guard<'static, Table> {
    SITES.lock_seldom()
}

/// A hash of the addresses, by Fowler, Noll and Vo's scheme over words, with a final mix.
fn hash(frames: &[usize]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for &frame in frames {
        h = (h ^ frame as u64).wrapping_mul(0x0000_0100_0000_01b3);
        h ^= h >> 29;
    }
    h ^ (h >> 32)
}

impl Table {
    /// A table without sites.
    const fn new(told: Told) -> Table {
        Table {
            buckets: None,
            bucket_count: 0,
            first: None,
            last: None,
            count: 0,
            bytes: 0,
            live: Amount::NONE,
            ever: Amount::NONE,
            most_bytes: 0,
            epoch: 0,
            told,
        }
    }

    /// The site of this stack; a new one if need be. `None` when memory is out. All sites together
    /// take at most about `most_bytes` bytes: further stacks share one site.
    #[inline(never)]
    pub fn site(&mut self, frames: &[usize], most_bytes: usize) -> Option<&'static Site> {
        let hash = hash(frames);
        if let Some(site) = self.find(hash, frames) {
            return Some(site);
        }
        if self.bytes >= most_bytes && !frames.is_empty() {
            return self.site(&[MORE], usize::MAX);
        }
        self.make(hash, frames)
    }

    fn bucket(&self, hash: u64) -> Option<&Cell<Option<&'static Site>>> {
        let at = hash as usize & self.bucket_count.wrapping_sub(1);
        // SAFETY: there are `bucket_count` buckets, a power of two.
        self.buckets.map(|first| unsafe { first.add(at).as_ref() })
    }

    fn find(&self, hash: u64, frames: &[usize]) -> Option<&'static Site> {
        let mut at = self.bucket(hash)?.get();
        while let Some(site) = at {
            if site.hash == hash && site.frames() == frames {
                return Some(site);
            }
            at = site.next.get();
        }
        None
    }

    #[inline(never)]
    fn make(&mut self, hash: u64, frames: &[usize]) -> Option<&'static Site> {
        if self.count >= self.bucket_count {
            self.grow();
        }
        let bytes = size_of::<Site>() + size_of_val(frames);
        // Without buckets there is no memory.
        self.bucket(hash)?;
        let record = meta::take(bytes)?.cast::<Site>();
        // SAFETY: the record has room for the site and its addresses, and nothing else uses it.
        let site: &'static Site = unsafe {
            record.write(Site {
                hash,
                frames: frames.len() as u32,
                version: Version::new(),
                next: Cell::new(None),
                later: Published::none(),
                live: Cell::new(Amount::NONE),
                ever: Cell::new(Amount::NONE),
                requested: Cell::new(0),
                peak: Cell::new(Amount::NONE),
                epoch: Cell::new(self.epoch),
                freed: Cell::new(0),
                lived_ms: Cell::new(0),
            });
            let to = record.add(1).cast::<usize>();
            to.copy_from_nonoverlapping(NonNull::from(frames).cast(), frames.len());
            record.as_ref()
        };
        let bucket = self.bucket(hash)?;
        site.next.set(bucket.replace(Some(site)));
        match self.last.replace(site) {
            Some(last) => last.later.set(site),
            None => {
                self.first = Some(site);
                self.told.first_site(site);
            }
        }
        self.count += 1;
        self.bytes += meta::size_taken(bytes);
        Some(site)
    }

    /// Doubles the buckets. Without memory, the table goes on with those that it has.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        type Bucket = Cell<Option<&'static Site>>;
        let count = (self.bucket_count * 2).max(FIRST_BUCKETS);
        let Some(room) = meta::take(count * size_of::<Bucket>()) else {
            return;
        };
        let first = room.cast::<Bucket>();
        for i in 0..count {
            // SAFETY: the record has room for `count` buckets, and nothing else uses it.
            unsafe { first.add(i).write(Cell::new(None)) };
        }
        let old = (self.buckets.replace(first), self.bucket_count);
        self.bucket_count = count;
        let mut at = self.first;
        while let Some(site) = at {
            if let Some(bucket) = self.bucket(site.hash) {
                site.next.set(bucket.replace(Some(site)));
            }
            at = site.later.get();
        }
        if let (Some(old), count) = old {
            // SAFETY: the old buckets were taken with this size, and nothing refers to them.
            unsafe { meta::give(old.cast(), count * size_of::<Bucket>()) };
        }
    }

    /// Saves the site's amount if this is its first change since the peak.
    fn change(&self, site: &Site) {
        if site.epoch.replace(self.epoch) != self.epoch {
            site.peak.set(site.live.get());
        }
    }

    /// Adds a sampled block to its site.
    #[inline(never)]
    pub fn add(&mut self, site: &Site, amount: Amount, requested: u64) {
        site.version.change(|| {
            self.change(site);
            site.live.set(site.live.get().plus(amount));
            site.ever.set(site.ever.get().plus(amount));
            site.requested
                .set(site.requested.get().wrapping_add(requested));
        });
        self.live = self.live.plus(amount);
        self.ever = self.ever.plus(amount);
        if self.live.bytes > self.most_bytes {
            self.most_bytes = self.live.bytes;
            self.next_epoch();
        }
    }

    fn next_epoch(&mut self) {
        self.epoch += 1;
        self.told.epoch(self.epoch);
    }

    /// Removes a sampled block from its site.
    #[inline(never)]
    pub fn remove(&mut self, site: &Site, amount: Amount, requested: u64) {
        site.version.change(|| {
            self.change(site);
            site.live.set(site.live.get().minus(amount));
            site.requested
                .set(site.requested.get().wrapping_sub(requested));
        });
        self.live = self.live.minus(amount);
    }

    /// Counts the lifetime of a freed block.
    #[inline(never)]
    pub fn lived(&mut self, site: &Site, amount: Amount, ms: u64) {
        let sum = rounded(amount.blocks as u128 * ms as u128);
        site.version.change(|| {
            site.freed.set(site.freed.get().wrapping_add(amount.blocks));
            site.lived_ms.set(site.lived_ms.get().wrapping_add(sum));
        });
    }

    /// Clears all counts; sites stay for reuse.
    pub fn reset(&mut self) {
        self.live = Amount::NONE;
        self.ever = Amount::NONE;
        self.most_bytes = 0;
        self.next_epoch();
        let mut at = self.first;
        while let Some(site) = at {
            site.version.change(|| {
                site.live.set(Amount::NONE);
                site.ever.set(Amount::NONE);
                site.requested.set(0);
                site.peak.set(Amount::NONE);
                site.epoch.set(self.epoch);
                site.freed.set(0);
                site.lived_ms.set(0);
            });
            at = site.later.get();
        }
    }

    /// Makes the present bytes in use the peak.
    pub fn reset_peak(&mut self) {
        self.most_bytes = self.live.bytes;
        self.next_epoch();
    }

    /// The sums over all sites: live, and ever.
    pub fn totals(&self) -> (Amount, Amount) {
        (self.live, self.ever)
    }

    /// The most live bytes so far.
    pub fn peak_bytes(&self) -> u64 {
        self.most_bytes
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all records and buckets.
    pub fn bytes(&self) -> usize {
        self.bytes + self.bucket_count * size_of::<usize>()
    }

    /// The site made after this one; the first after none.
    pub fn after(&self, site: Option<&'static Site>) -> Option<&'static Site> {
        match site {
            Some(site) => site.later.get(),
            None => self.first,
        }
    }

    /// What the site holds.
    pub fn figures(&self, site: &Site) -> SiteTotals {
        let live = site.live.get();
        let is_of_peak = site.epoch.get() == self.epoch;
        SiteTotals {
            live,
            ever: site.ever.get(),
            peak: if is_of_peak { site.peak.get() } else { live },
            requested: site.requested.get(),
            freed: rounded(site.freed.get() as u128),
            lived_ms: site.lived_ms.get(),
        }
    }
}

/// Calls `f` with each site and its figures, without the lock: new sites may be missed, and no
/// site's figures are torn.
#[inline(never)]
pub fn each(f: &mut dyn FnMut(&'static Site, &SiteTotals)) {
    let mut at = None;
    loop {
        let table = table();
        let Some(site) = table.after(at) else {
            return;
        };
        let figures = table.figures(site);
        drop(table);
        f(site, &figures);
        at = Some(site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const ROOM: usize = 1 << 30;

    fn fresh() -> Table {
        Table::new(Told(false))
    }

    fn amount(bytes: u64) -> Amount {
        Amount {
            blocks: 1 << 20,
            bytes,
        }
    }

    #[test]
    fn equal_stacks_share_a_site_and_others_do_not() {
        let mut table = fresh();
        let stacks: Vec<Vec<usize>> = (0..2000)
            .map(|i| (0..i % 40).map(|j| i ^ j).collect())
            .collect();
        let first: Vec<_> = stacks
            .iter()
            .map(|s| table.site(s, ROOM).unwrap())
            .collect();
        for (stack, site) in stacks.iter().zip(&first) {
            assert_eq!(site.frames(), &stack[..]);
            assert!(core::ptr::eq(table.site(stack, ROOM).unwrap(), *site));
        }
        let mut distinct = stacks.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(table.count(), distinct.len());
    }

    #[test]
    fn stacks_beyond_the_room_share_one_site() {
        let mut table = fresh();
        let a = table.site(&[1, 2], 1).unwrap();
        assert_eq!(a.frames(), [1, 2], "the first fits in any room");
        let more = table.site(&[3], 1).unwrap();
        assert!(more.is_of_more() && !a.is_of_more());
        assert!(core::ptr::eq(more, table.site(&[4], 1).unwrap()));
        assert!(core::ptr::eq(a, table.site(&[1, 2], 1).unwrap()));
        let none = table.site(&[], 1).unwrap();
        assert!(!none.is_of_more(), "no stack is another matter");
    }

    proptest! {
        /// The peak of each site is its amount when the sum was at its maximum.
        #[test]
        fn the_peak_agrees_with_a_model(steps in prop::collection::vec((0usize..5, 0u64..100, any::<bool>()), 1..400)) {
            let mut table = fresh();
            let sites: Vec<_> = (0..5).map(|i| table.site(&[i], ROOM).unwrap()).collect();
            let mut live: HashMap<usize, Vec<u64>> = HashMap::new();
            let (mut max, mut at_peak) = (0, [0u64; 5]);
            for (i, bytes, is_add) in steps {
                if is_add {
                    live.entry(i).or_default().push(bytes);
                    table.add(sites[i], amount(bytes), bytes);
                } else if let Some(bytes) = live.get_mut(&i).and_then(Vec::pop) {
                    table.remove(sites[i], amount(bytes), bytes);
                }
                let of = |i: usize| live.get(&i).map_or(0, |l| l.iter().sum::<u64>());
                let sum: u64 = (0..5).map(of).sum();
                if sum > max {
                    max = sum;
                    at_peak = core::array::from_fn(of);
                }
                for (i, site) in sites.iter().enumerate() {
                    let figures = table.figures(site);
                    prop_assert_eq!(figures.live.bytes(), of(i));
                    prop_assert_eq!(figures.requested, of(i));
                    prop_assert_eq!(figures.peak.bytes(), at_peak[i]);
                }
                prop_assert_eq!(table.peak_bytes(), max);
            }
        }
    }
}
