//! Where a reader outside the process finds the profiler's records.
//!
//! A note in the file (`.note.mallard`) says where the [`Root`] lies, relative to the note. The root
//! leads to the list of sites. A reader copies both with `process_vm_readv`, or from a core file,
//! and so needs no help of the process, which may be stopped, hung or dead. Records are never freed
//! ([`meta`](crate::space::meta)), so the list can be followed while the process runs; the two
//! numbers of an amount may be of different moments.
//!
//! The root is zero until sampling is first switched on. [`LAYOUT`] counts the changes to what is
//! described here, and to [`Site`](super::sites::Site).

use super::sites::Site;
use crate::sys::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::arch::global_asm;

/// `MALLARD` and a zero, as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"MALLARD\0");
/// The version of the layout.
const LAYOUT: u32 = 1;

/// What a reader finds first. Only ever written by the profiler, and each field at once.
#[repr(C, align(64))]
pub struct Root {
    magic: AtomicU64,
    layout: AtomicU32,
    /// The mean bytes between samples (base-2 logarithm).
    lg_sample: AtomicU32,
    /// 1 while sampling is on.
    is_on: AtomicU32,
    /// The bytes of a [`Site`] before its addresses.
    site_bytes: AtomicU32,
    /// The first site made; each leads to the next.
    first_site: AtomicPtr<Site>,
    /// The epoch of the peak: see [`sites`](super::sites).
    epoch: AtomicU64,
    /// The number of live samples.
    samples: AtomicUsize,
    rest: [AtomicU64; 1],
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
    rest: [const { AtomicU64::new(0) }; 1],
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

/// Describes the profiler, before the first sample.
pub fn begin(lg_sample: u32) {
    set_lg_sample(lg_sample);
    ROOT.layout.store(LAYOUT, Ordering::Relaxed);
    ROOT.site_bytes
        .store(size_of::<Site>() as u32, Ordering::Relaxed);
    ROOT.magic.store(MAGIC, Ordering::Release);
}

pub fn set_lg_sample(lg_sample: u32) {
    ROOT.lg_sample.store(lg_sample, Ordering::Relaxed);
}

pub fn set_on(on: bool) {
    ROOT.is_on.store(on.into(), Ordering::Relaxed);
}

pub fn set_first_site(site: &'static Site) {
    let site = core::ptr::from_ref(site).cast_mut();
    ROOT.first_site.store(site, Ordering::Release);
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
    use core::mem::offset_of;

    /// A reader of another build relies on this; a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_that_of_its_number() {
        assert_eq!(LAYOUT, 1);
        let root = [
            offset_of!(Root, magic),
            offset_of!(Root, layout),
            offset_of!(Root, lg_sample),
            offset_of!(Root, is_on),
            offset_of!(Root, site_bytes),
            offset_of!(Root, first_site),
            offset_of!(Root, epoch),
            offset_of!(Root, samples),
        ];
        assert_eq!(root, [0, 8, 12, 16, 20, 24, 32, 40]);
        assert_eq!(Site::OFFSETS, [8, 24, 32, 48, 64, 72, 88, 96, 104]);
        assert_eq!(size_of::<Site>(), 112);
    }
}
