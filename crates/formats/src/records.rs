//! The heap profiler's records in a process's memory, and the root block that leads to them and to
//! the page of statistics.
//!
//! A note in the file of a program or library ([`NOTE_OWNER`]) says where the [`Root`] lies. The
//! root leads to the page and to two lists: of sites, and of sampled blocks. [`LAYOUT`] counts the
//! changes to what is described here. Readers refuse another layout, but for the root's word for
//! the page, which stays where it is.
//!
//! The allocator has its own types for sites and samples, with references and cells. It checks as
//! it is compiled that they lie as these do.

use core::mem::offset_of;

/// How a root block begins that is filled in.
pub const MAGIC: u64 = crate::mark(b"MALLARD\0");
/// The version of the layout.
pub const LAYOUT: u32 = 4;

/// The ELF note that leads to the root: its owner with the zero at its end, and its type. Its text
/// is eight bytes, the root's distance from themselves.
pub const NOTE_OWNER: &[u8; 8] = b"Mallard\0";
pub const NOTE_TYPE: u32 = 1;
pub const NOTE_TEXT_BYTES: usize = 8;

/// What a reader finds first. It is zero until sampling is first switched on or there is a page.
/// Each field is written at once.
#[repr(C, align(64))]
pub struct Root<W32, W64, Pointer> {
    /// [`MAGIC`], written last.
    pub magic: W64,
    pub layout: W32,
    /// The mean bytes between samples (base-2 logarithm).
    pub lg_sample: W32,
    /// 1 while sampling is on.
    pub is_on: W32,
    /// The bytes of a site before its addresses.
    pub site_bytes: W32,
    /// The first site made; each leads to the next.
    pub first_site: Pointer,
    /// The number of times that the live bytes reached a new maximum.
    pub epoch: W64,
    /// The number of live samples.
    pub samples: W64,
    /// The last record of a sampled block made; each leads to the one before.
    pub last_sample: Pointer,
    /// The bytes of such a record.
    pub sample_bytes: W32,
    /// The number of resets: samples with another one do not count any more.
    pub resets: W32,
    /// The bytes of a slab's record, which begins with the slab's address, before its bitmap.
    pub slab_bytes: W32,
    pub unused: W32,
    /// The map of the heap ([`crate::heap::HeapMap`]); null in older versions.
    pub heap: Pointer,
    pub rest: [W32; 10],
    /// The page of statistics; null if there is none. It is here in every layout.
    pub page: Pointer,
}

/// The root as a reader copies it.
pub type PlainRoot = Root<u32, u64, u64>;

/// Where the root has the address of the heap's map.
pub const ROOT_HEAP_AT: usize = offset_of!(PlainRoot, heap);
/// Where the root has the page's address, in every layout.
pub const ROOT_PAGE_AT: usize = offset_of!(PlainRoot, page);

/// Records begin at multiples of this.
pub const ALIGN_BYTES: usize = 32;
/// Fraction bits of weights and of sums of blocks.
pub const FRACTION_BITS: u32 = 20;
/// The one frame of the site that stands for all stacks for which there was no room. No return
/// address is as high; readers name it `(more)`.
pub const MORE: u64 = u64::MAX;

/// Sums over samples: the blocks in units of 2^-[`FRACTION_BITS`], and the bytes.
#[repr(C)]
pub struct Amount {
    pub blocks: u64,
    pub bytes: u64,
}

/// A call stack and its counters. The addresses follow the record, the innermost first.
#[repr(C)]
pub struct Site {
    pub hash: u64,
    pub frames: u32,
    /// Counts the changes of the record: odd while one is under way.
    pub version: u32,
    pub next: u64,
    /// The site made next; 0 for none.
    pub later: u64,
    pub live: Amount,
    pub ever: Amount,
    /// The bytes that programs asked for of the live blocks.
    pub requested: u64,
    /// The amount at the peak, if the site changed since then.
    pub peak: Amount,
    /// [`Root::epoch`] as of the last change.
    pub epoch: u64,
    /// The blocks that were freed, and the sum of the milliseconds that they lived.
    pub freed: u64,
    pub lived_ms: u64,
}

/// What is known of a sampled block.
#[repr(C)]
pub struct Sample {
    /// The address of its site.
    pub site: u64,
    /// The blocks that it stands for.
    pub weight: u64,
    pub requested: u64,
    pub usable: u64,
    /// The record of the slab that holds the block, and its number of regions; 0 outside slabs.
    pub slab: u64,
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

/// The record of a sampled block.
#[repr(C)]
pub struct Entry {
    /// The block's address; 0 if the record is not in use.
    pub at: u64,
    /// As [`Site::version`].
    pub version: u32,
    /// The record that was made before this one; 0 for none.
    pub older: u64,
    pub sample: Sample,
    pub next: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of another build relies on this; a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_that_of_its_number() {
        assert_eq!(LAYOUT, 4);
        let root = [
            offset_of!(PlainRoot, magic),
            offset_of!(PlainRoot, layout),
            offset_of!(PlainRoot, lg_sample),
            offset_of!(PlainRoot, is_on),
            offset_of!(PlainRoot, site_bytes),
            offset_of!(PlainRoot, first_site),
            offset_of!(PlainRoot, epoch),
            offset_of!(PlainRoot, samples),
            offset_of!(PlainRoot, last_sample),
            offset_of!(PlainRoot, sample_bytes),
            offset_of!(PlainRoot, resets),
            offset_of!(PlainRoot, slab_bytes),
            offset_of!(PlainRoot, heap),
            offset_of!(PlainRoot, page),
        ];
        assert_eq!(
            root,
            [0, 8, 12, 16, 20, 24, 32, 40, 48, 56, 60, 64, 72, 120]
        );
        assert_eq!(size_of::<PlainRoot>(), 128);
        let site = [
            offset_of!(Site, frames),
            offset_of!(Site, version),
            offset_of!(Site, later),
            offset_of!(Site, live),
            offset_of!(Site, ever),
            offset_of!(Site, requested),
            offset_of!(Site, peak),
            offset_of!(Site, epoch),
            offset_of!(Site, freed),
            offset_of!(Site, lived_ms),
        ];
        assert_eq!(site, [8, 12, 24, 32, 48, 64, 72, 88, 96, 104]);
        assert_eq!(size_of::<Site>(), 112);
        let sample = [
            offset_of!(Sample, site),
            offset_of!(Sample, weight),
            offset_of!(Sample, requested),
            offset_of!(Sample, usable),
            offset_of!(Sample, slab),
            offset_of!(Sample, regions),
            offset_of!(Sample, tid),
            offset_of!(Sample, born_ns),
            offset_of!(Sample, thread),
            offset_of!(Sample, arena),
            offset_of!(Sample, resets),
        ];
        assert_eq!(sample, [0, 8, 16, 24, 32, 40, 44, 48, 56, 60, 62]);
        assert_eq!(size_of::<Sample>(), 64);
        let entry = [
            offset_of!(Entry, at),
            offset_of!(Entry, version),
            offset_of!(Entry, older),
            offset_of!(Entry, sample),
        ];
        assert_eq!(entry, [0, 8, 16, 24]);
        assert_eq!(size_of::<Entry>(), 96);
    }
}
