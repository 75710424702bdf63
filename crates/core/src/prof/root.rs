//! Where a reader outside the process finds the profiler's records, and the page of statistics.
//!
//! A note in the file (`.note.mallard`) says where the [`Root`] lies, relative to the note. The
//! root leads to the page and to two lists: of sites, and of sampled blocks. A reader copies them
//! with `process_vm_readv`, or from a core file, and so needs no help of the process, which may be
//! stopped, hung or dead. Records of these lists are never freed, and their links never change, so
//! that a reader can follow them while the process runs. Each record has a [`Version`], by which a
//! reader knows whether it copied the record in the middle of a change.
//!
//! The root is zero until sampling is first switched on or there is a page. [`LAYOUT`] counts the
//! changes to what is described here, and to the records ([`Site`](super::sites::Site), and those
//! of [`samples`](super::samples)).

use crate::arena::inspect::SLAB_RECORD_BYTES;
use crate::sys::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::upkeep::export::page::StatsPage;
use core::arch::global_asm;

/// `MALLARD` and a zero, as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"MALLARD\0");
/// The version of the layout.
const LAYOUT: u32 = 4;

/// Counts the changes of a record, for readers outside the process: odd while a change is under
/// way. A lock guards the record against other writers.
pub struct Version(AtomicU32);

impl Version {
    pub const fn new() -> Version {
        Version(AtomicU32::new(0))
    }

    /// Runs a change of the record.
    #[inline]
    pub fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        // Odd even if an earlier change never ended: a fork may have left its thread behind.
        let odd = self.0.load(Ordering::Relaxed) | 1;
        self.0.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        let result = change();
        self.0.store(odd.wrapping_add(1), Ordering::Release);
        result
    }
}

/// What a reader finds first. Each field is written at once.
#[repr(C, align(64))]
pub struct Root {
    magic: AtomicU64,
    layout: AtomicU32,
    /// The mean bytes between samples (base-2 logarithm).
    lg_sample: AtomicU32,
    /// 1 while sampling is on.
    is_on: AtomicU32,
    /// The bytes of a site before its addresses.
    site_bytes: AtomicU32,
    /// The first site made; each leads to the next.
    first_site: AtomicPtr<()>,
    /// The epoch of the peak: see [`sites`](super::sites).
    epoch: AtomicU64,
    /// The number of live samples.
    samples: AtomicUsize,
    /// The last record of a sampled block made; each leads to the one before.
    last_sample: AtomicPtr<()>,
    /// The bytes of such a record.
    sample_bytes: AtomicU32,
    /// The number of resets: samples with another one do not count any more.
    resets: AtomicU32,
    /// The bytes of a slab's record before its bitmap.
    slab_bytes: AtomicU32,
    rest: [AtomicU32; 13],
    /// The page of statistics; null if there is none. It is here in every layout.
    page: AtomicPtr<StatsPage>,
}

static ROOT: Root = Root {
    magic: AtomicU64::new(0),
    layout: AtomicU32::new(0),
    lg_sample: AtomicU32::new(0),
    is_on: AtomicU32::new(0),
    site_bytes: AtomicU32::new(0),
    first_site: AtomicPtr::new(core::ptr::null_mut()),
    epoch: AtomicU64::new(0),
    samples: AtomicUsize::new(0),
    last_sample: AtomicPtr::new(core::ptr::null_mut()),
    sample_bytes: AtomicU32::new(0),
    resets: AtomicU32::new(0),
    slab_bytes: AtomicU32::new(0),
    rest: [const { AtomicU32::new(0) }; 13],
    page: AtomicPtr::new(core::ptr::null_mut()),
};

// An ELF note of the owner "Mallard", type 1: eight bytes, the root's distance from themselves.
global_asm!(
    ".pushsection .note.mallard,\"a\",@note",
    ".p2align 2",
    ".long 8",
    ".long 8",
    ".long 1",
    ".asciz \"Mallard\"",
    "22:",
    ".quad {root} - 22b",
    ".popsection",
    root = sym ROOT,
);

/// The sizes of the records that the root leads to.
#[derive(Clone, Copy)]
pub struct RecordBytes {
    /// Bytes of a site's record before its addresses.
    pub site: usize,
    /// Bytes of a sampled block's record.
    pub sample: usize,
}

/// Describes the profiler, before the first sample or page.
pub fn begin(lg_sample: u32, bytes: RecordBytes) {
    set_lg_sample(lg_sample);
    ROOT.layout.store(LAYOUT, Ordering::Relaxed);
    for (field, bytes) in [
        (&ROOT.site_bytes, bytes.site),
        (&ROOT.sample_bytes, bytes.sample),
        (&ROOT.slab_bytes, SLAB_RECORD_BYTES),
    ] {
        field.store(bytes as u32, Ordering::Relaxed);
    }
    ROOT.magic.store(MAGIC, Ordering::Release);
}

/// Leads readers to the page of statistics, or to none.
pub fn set_page(page: *const StatsPage) {
    ROOT.page.store(page.cast_mut(), Ordering::Release);
}

pub fn set_lg_sample(lg_sample: u32) {
    ROOT.lg_sample.store(lg_sample, Ordering::Relaxed);
}

pub fn set_on(on: bool) {
    ROOT.is_on.store(on.into(), Ordering::Relaxed);
}

pub fn set_first_site<Site>(site: &'static Site) {
    let site = core::ptr::from_ref(site).cast_mut().cast();
    ROOT.first_site.store(site, Ordering::Release);
}

pub fn set_last_sample<Entry>(entry: &'static Entry) {
    let entry = core::ptr::from_ref(entry).cast_mut().cast();
    ROOT.last_sample.store(entry, Ordering::Release);
}

pub fn set_resets(resets: usize) {
    ROOT.resets.store(resets as u32, Ordering::Relaxed);
}

pub fn set_epoch(epoch: u64) {
    ROOT.epoch.store(epoch, Ordering::Relaxed);
}

pub fn set_samples(samples: usize) {
    ROOT.samples.store(samples, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prof::samples::{Entry, Sample};
    use crate::prof::sites::Site;
    use core::mem::offset_of;

    /// A reader of another build relies on this; a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_that_of_its_number() {
        assert_eq!(LAYOUT, 4);
        let root = [
            offset_of!(Root, magic),
            offset_of!(Root, layout),
            offset_of!(Root, lg_sample),
            offset_of!(Root, is_on),
            offset_of!(Root, site_bytes),
            offset_of!(Root, first_site),
            offset_of!(Root, epoch),
            offset_of!(Root, samples),
            offset_of!(Root, last_sample),
            offset_of!(Root, sample_bytes),
            offset_of!(Root, resets),
            offset_of!(Root, slab_bytes),
            offset_of!(Root, page),
        ];
        assert_eq!(root, [0, 8, 12, 16, 20, 24, 32, 40, 48, 56, 60, 64, 120]);
        assert_eq!(size_of::<Root>(), 128);
        assert_eq!(Site::OFFSETS, [8, 12, 24, 32, 48, 64, 72, 88, 96, 104]);
        assert_eq!(size_of::<Site>(), 112);
        assert_eq!(Sample::OFFSETS, [0, 8, 16, 24, 32, 40, 44, 48, 56, 60, 62]);
        assert_eq!(size_of::<Sample>(), 64);
        assert_eq!(Entry::OFFSETS, [0, 8, 16, 24]);
        assert_eq!(size_of::<Entry>(), 96);
    }

    #[test]
    fn a_version_is_odd_during_a_change() {
        let version = Version::new();
        let during = version.change(|| version.0.load(Ordering::Relaxed));
        assert_eq!((during, version.0.load(Ordering::Relaxed)), (1, 2));
        // Of a thread that a fork left behind.
        version.0.store(5, Ordering::Relaxed);
        let during = version.change(|| version.0.load(Ordering::Relaxed));
        assert_eq!((during, version.0.load(Ordering::Relaxed)), (5, 6));
    }
}
