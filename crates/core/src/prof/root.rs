//! Where a reader outside the process finds the profiler's records, and the page of statistics.
//!
//! [`mallard_formats::records`] has the layout. A reader copies the records with
//! `process_vm_readv`, or from a core file, and so needs no help of the process, which may be
//! stopped, hung or dead. Records of the lists are never freed, and their links never change, so
//! that a reader can follow them while the process runs. Each record has a [`Version`], by which a
//! reader knows whether it copied the record in the middle of a change.

use crate::arena::inspect::{SLAB_FIELDS_AT, SLAB_RECORD_BYTES};
use crate::class::SlabShape;
use crate::space::segment::{OUTLINE, TABLES};
use crate::sys::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use crate::upkeep::export::page::StatsPage;
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::{null, null_mut};
use mallard_formats::heap;
use mallard_formats::records::{self, LAYOUT, MAGIC, NOTE_OWNER, NOTE_TEXT_BYTES, NOTE_TYPE};

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

/// Checks that a record lies in memory as readers outside the process expect.
macro_rules! promised {
    ($own:ty as $promised:ty: $($field:ident),*) => {
        const _: () = {
            use core::mem::offset_of;
            assert!(size_of::<$own>() == size_of::<$promised>());
            $(assert!(offset_of!($own, $field) == offset_of!($promised, $field));)*
        };
    };
}
pub(super) use promised;

type Root = records::Root<AtomicU32, AtomicU64, AtomicPtr<()>>;

static ROOT: Root = Root {
    magic: AtomicU64::new(0),
    layout: AtomicU32::new(0),
    lg_sample: AtomicU32::new(0),
    is_on: AtomicU32::new(0),
    site_bytes: AtomicU32::new(0),
    first_site: AtomicPtr::new(null_mut()),
    epoch: AtomicU64::new(0),
    samples: AtomicU64::new(0),
    last_sample: AtomicPtr::new(null_mut()),
    sample_bytes: AtomicU32::new(0),
    resets: AtomicU32::new(0),
    slab_bytes: AtomicU32::new(0),
    unused: AtomicU32::new(0),
    heap: AtomicPtr::new(null_mut()),
    rest: [const { AtomicU32::new(0) }; 10],
    page: AtomicPtr::new(null_mut()),
};

/// An address of something that stays, and that is only read by this.
#[allow(dead_code)] // Readers outside the process follow it.
struct Fixed(*const ());

// SAFETY: nothing in this process follows it.
unsafe impl Sync for Fixed {}

/// Where readers find blocks, but for the addresses.
const HEAP: heap::HeapMap<Fixed> = heap::HeapMap {
    magic: heap::MAGIC,
    layout: heap::LAYOUT,
    segments_max: OUTLINE.max,
    segments: Fixed(null()),
    segment_count: Fixed(null()),
    segment_bytes: OUTLINE.bytes,
    segment_heap_at: OUTLINE.heap_at,
    segment_tables_at: OUTLINE.tables_at,
    segment_chunks_at: OUTLINE.chunks_at,
    chunk_bytes: OUTLINE.chunk,
    page_bytes: OUTLINE.page,
    table_chunks: OUTLINE.group_chunks,
    table_pages_at: OUTLINE.group_pages_at,
    table_bytes: OUTLINE.group_bytes,
    slab_bytes: SLAB_RECORD_BYTES as u32,
    slab_address_at: SLAB_FIELDS_AT[0] as u32,
    slab_shape_at: SLAB_FIELDS_AT[1] as u32,
    shape_size_at: offset_of!(SlabShape, size) as u32,
    shape_regions_at: offset_of!(SlabShape, regions) as u32,
    line_bytes: OUTLINE.line,
    unused: 0,
};

/// The memory of [`HEAP`], which is filled when a reader may first want it: in the library's
/// constants, its addresses would cost each process a page.
struct Map(UnsafeCell<MaybeUninit<heap::HeapMap<Fixed>>>);

// SAFETY: it is written under a lock, and nothing in this process reads it.
unsafe impl Sync for Map {}

static MAP: Map = Map(UnsafeCell::new(MaybeUninit::uninit()));

// The note that leads to the root.
global_asm!(
    ".pushsection .note.mallard,\"a\",@note",
    ".p2align 2",
    ".long {owner_bytes}",
    ".long {text_bytes}",
    ".long {type}",
    ".quad {owner}",
    "22:",
    ".quad {root} - 22b",
    ".popsection",
    owner_bytes = const NOTE_OWNER.len(),
    text_bytes = const NOTE_TEXT_BYTES,
    type = const NOTE_TYPE,
    owner = const u64::from_le_bytes(*NOTE_OWNER),
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
    let map = MAP.0.get().cast::<heap::HeapMap<Fixed>>();
    // SAFETY: see `Map`.
    unsafe {
        map.write(HEAP);
        (&raw mut (*map).segments).write(Fixed(TABLES[0]));
        (&raw mut (*map).segment_count).write(Fixed(TABLES[1]));
    }
    ROOT.heap.store(MAP.0.get().cast(), Ordering::Relaxed);
    ROOT.magic.store(MAGIC, Ordering::Release);
}

/// Leads readers to the page of statistics, or to none.
pub fn set_page(page: *const StatsPage) {
    ROOT.page.store(page.cast_mut().cast(), Ordering::Release);
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
    ROOT.samples.store(samples as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

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
