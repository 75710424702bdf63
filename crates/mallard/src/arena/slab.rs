//! A slab: a run of pages cut into regions of one class.
//!
//! The record stands apart from the regions, in metadata memory: which regions are free is a bitmap
//! there, so that a free region is never read or written by us. A slab belongs to one bin for its
//! life, whose lock guards the cells.

use crate::class::{Class, PAGE, SlabShape};
use crate::die;
use crate::heap::HEAP;
use crate::space::region::PageRecord;
use crate::space::{Region, meta};
use crate::sys::atomic::{AtomicUsize, Ordering};
use core::cell::Cell;
use core::ptr::NonNull;

/// A counter in a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicUsize);

/// Pages of all slabs.
static PAGES: Counter = Counter(AtomicUsize::new(0));

/// Bytes of all slabs.
pub fn bytes() -> usize {
    PAGES.0.load(Ordering::Relaxed) * PAGE
}

/// Steps of fullness that a bin's lists distinguish.
pub const LEVELS: usize = 8;

#[repr(C, align(64))]
pub struct Slab {
    addr: usize,
    shape: &'static SlabShape,
    /// One bit per region, set when it is free.
    bits: &'static [Cell<u64>],
    class: Class,
    arena: u16,
    free: Cell<u16>,
    /// No word of the bitmap below this one has a bit set.
    hint: Cell<u16>,
    /// The list of the bin that it is in, or [`NO_LEVEL`].
    pub level: Cell<u8>,
    pub next: Cell<Option<&'static Slab>>,
    pub prev: Cell<Option<&'static Slab>>,
}

/// A pointer that cannot be given back. Who finds out holds a lock: the process is ended after that
/// is free, because a handler of the signal may want to allocate.
#[derive(Clone, Copy, Debug)]
pub enum Misuse {
    /// Points inside a block of the class.
    Inside(usize, Class),
    /// A block of the class that is free already.
    Double(usize, Class),
}

impl Misuse {
    /// Ends the process.
    #[cold]
    pub fn die(self) -> ! {
        match self {
            Misuse::Inside(p, class) => {
                die!(
                    "free of {p:#x}, which points inside a block of {} bytes",
                    class.size()
                )
            }
            Misuse::Double(p, class) => {
                die!("double free of {p:#x}, a block of {} bytes", class.size())
            }
        }
    }
}

/// The value of `level` of a slab in no list.
pub const NO_LEVEL: u8 = u8::MAX;

impl Slab {
    fn record_size(shape: &SlabShape) -> usize {
        size_of::<Slab>() + (shape.regions as usize).div_ceil(64) * 8
    }

    /// A new slab with all regions free, entered in the page map. None when memory is out.
    pub fn make(class: Class, arena: u16) -> Option<&'static Slab> {
        let shape = class.shape();
        let (regions, pages) = (shape.regions as usize, shape.pages as usize);
        let record = meta::take(Self::record_size(shape))?;
        let Some(run) = super::heap_of(arena).alloc(pages, class.slab_align()) else {
            // SAFETY: taken above with this size, unused.
            unsafe { meta::give(record, Self::record_size(shape)) };
            return None;
        };
        let words = regions.div_ceil(64);
        // SAFETY: the record has room for the header and `words` words behind it, is aligned to a
        // cache line, and is nobody else's.
        let slab: &'static Slab = unsafe {
            let first = record.as_ptr().add(size_of::<Slab>()).cast::<Cell<u64>>();
            for i in 0..words {
                let used = regions - i * 64;
                first.add(i).write(Cell::new(if used >= 64 {
                    u64::MAX
                } else {
                    (1 << used) - 1
                }));
            }
            let slab = record.cast::<Slab>();
            slab.write(Slab {
                addr: run.addr,
                shape,
                bits: core::slice::from_raw_parts(first, words),
                class,
                arena,
                free: Cell::new(regions as u16),
                hint: Cell::new(0),
                level: Cell::new(NO_LEVEL),
                next: Cell::new(None),
                prev: Cell::new(None),
            });
            slab.as_ref()
        };
        PAGES.0.fetch_add(pages, Ordering::Relaxed);
        let at = core::ptr::from_ref(slab).addr();
        slab.home()
            .describe(run.addr, pages, class, PageRecord::Slab(at));
        Some(slab)
    }

    fn home(&self) -> &'static Region {
        match Region::find(self.addr) {
            Some(region) => region,
            None => die!("slab record at {:p} describes memory of no region", self),
        }
    }

    /// Takes the slab apart: its pages go back to the page heap, its record to the metadata.
    ///
    /// # Safety
    /// All regions are free, the slab is in no list, and no one refers to it.
    pub unsafe fn unmake(&'static self) {
        let (addr, shape) = (self.addr, self.shape);
        debug_assert!(self.is_empty() && self.level.get() == NO_LEVEL);
        self.home()
            .describe(addr, shape.pages as usize, Class::NONE, PageRecord::None);
        let record = NonNull::from(self).cast::<u8>();
        // SAFETY: the record was taken with this size, and the caller gives up the last reference.
        unsafe { meta::give(record, Self::record_size(shape)) };
        PAGES.0.fetch_sub(shape.pages as usize, Ordering::Relaxed);
        HEAP.free(addr, shape.pages as usize);
    }

    /// The slab whose region a cache calls `p`; ends the process when `p` is no such region.
    #[inline]
    pub fn of(p: usize, class: Class) -> &'static Slab {
        match Region::find(p).map(|r| r.record_of(p)) {
            Some(PageRecord::Slab(at)) => {
                // SAFETY: the page map holds addresses of live slab records only.
                let slab = unsafe { &*(at as *const Slab) };
                if slab.class != class {
                    die!(
                        "free of {p:#x} with the wrong size: it is a block of {} bytes, not {}",
                        slab.class.size(),
                        class.size()
                    );
                }
                slab
            }
            _ => die!("free of {p:#x}, which is not an allocated block"),
        }
    }

    pub fn arena(&self) -> u16 {
        self.arena
    }

    pub fn is_empty(&self) -> bool {
        self.free.get() == self.shape.regions
    }

    /// The list for a slab as full as this one; [`NO_LEVEL`] when no region is free.
    #[inline]
    pub fn fitting_level(&self) -> u8 {
        let free = self.free.get() as usize;
        if free == 0 {
            return NO_LEVEL;
        }
        let used = self.shape.regions as usize - free;
        self.shape.eighths(used) as u8
    }

    /// Takes free regions in ascending order until `out` is full or none is left.
    pub fn take(&self, out: &mut [usize]) -> usize {
        let size = self.shape.size as usize;
        let mut n = 0;
        let mut word = self.hint.get() as usize;
        while n < out.len() && word < self.bits.len() {
            let mut bits = self.bits[word].get();
            let base = self.addr + word * 64 * size;
            while bits != 0 && n < out.len() {
                out[n] = base + bits.trailing_zeros() as usize * size;
                bits &= bits - 1;
                n += 1;
            }
            self.bits[word].set(bits);
            if bits == 0 {
                word += 1;
            }
        }
        self.hint.set(word as u16);
        self.free.set(self.free.get() - n as u16);
        n
    }

    /// Whether `p` is the start of a region.
    pub fn begins_region(&self, p: usize) -> bool {
        self.shape.region_at(p - self.addr).is_some()
    }

    /// Whether `p` points into the slab.
    #[inline]
    pub fn covers(&self, p: usize) -> bool {
        p.wrapping_sub(self.addr) < self.shape.pages as usize * PAGE
    }

    /// Takes regions back, all of this slab.
    #[inline]
    pub fn give(&self, blocks: &[usize]) -> Result<(), Misuse> {
        let mut lowest = self.hint.get();
        for &p in blocks {
            let Some(i) = self.shape.region_at(p - self.addr) else {
                return Err(Misuse::Inside(p, self.class));
            };
            let (word, bit) = (i / 64, 1u64 << (i % 64));
            let bits = self.bits[word].get();
            if bits & bit != 0 {
                return Err(Misuse::Double(p, self.class));
            }
            self.bits[word].set(bits | bit);
            lowest = lowest.min(word as u16);
        }
        self.hint.set(lowest);
        self.free.set(self.free.get() + blocks.len() as u16);
        Ok(())
    }
}
