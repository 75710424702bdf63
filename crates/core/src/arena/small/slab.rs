//! A slab: a run of pages cut into regions of one class.
//!
//! The record lies in metadata memory, apart from the regions. A bitmap in it says which regions
//! are free, so we never read or write a free region. A slab belongs to one bin for its lifetime;
//! the bin's lock guards the cells.

use crate::arena::misuse::Misuse;
use crate::arena::pages::SLABS;
use crate::arena::small::traffic::Taker;
use crate::class::{Class, SlabShape};
use crate::die;
use crate::hardened::word::WordPlace;
use crate::heap::{PAGE_HEAPS, Run, RunRequest, nodes};
use crate::space::chunk::CHUNK;
use crate::space::meta::Kept;
use crate::space::segment::{Beginning, PageRecord};
use crate::space::{Segment, meta};
use crate::sys::atomic::{Ordering, fence};
use crate::sys::bits::Bits512;
use crate::sys::hint;
use crate::sys::mem;
use crate::sys::page::PAGE;
use crate::sys::poison;
use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::NonNull;

/// Levels of fullness that a bin's lists distinguish.
pub const LEVELS: usize = 8;

/// The bitmap follows the record, one bit per region, set if the region is free. The record starts
/// a cache line, so that returning a region to a slab of up to 128 regions touches only that line.
#[repr(C)]
pub struct Slab {
    addr: usize,
    shape: &'static SlabShape,
    pub next: Cell<Option<&'static Slab>>,
    pub prev: Cell<Option<&'static Slab>>,
    class: Class,
    /// The bin's list that the slab is in, or [`NO_LEVEL`].
    level: Cell<u8>,
    /// How many passes found it untouched since a region was last taken or returned
    /// ([`crate::arena::small::subrelease`]), and [`GONE`].
    quiet: Cell<u8>,
    /// Whether its pages were bare when it was made ([`crate::heap::Run::bare`]).
    bare: bool,
    /// Whether its pages were zero when it was made.
    fresh: bool,
    /// Whether its blocks are hardened: their pages are then filed under no class.
    hardened: bool,
    arena: u16,
    free: Cell<u16>,
    /// The slab is in the right list while no more regions than this are free.
    max_free: Cell<u16>,
    /// No word of the bitmap below this one has a bit set.
    hint: Cell<u16>,
    /// The thread that last took regions for its own use, if the last taker did.
    pub taker: Cell<Option<Taker>>,
}

// A free at random touches one line of small slabs, two of others.
const _: () = assert!(size_of::<Slab>() + 16 <= 64);

/// What the page map says of a block in a slab ([`Slab::watch`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    Sampled,
    Ordinary,
}

/// A block that cannot be taken back, and why.
#[derive(Clone, Copy, Debug)]
pub struct Wrong(pub usize, pub Misuse);

impl Wrong {
    /// Ends the process with a line about it.
    #[cold]
    pub fn die(self) -> ! {
        self.1.die(self.0)
    }
}

/// Words of the bitmap of a slab with the most regions.
pub const WORDS: usize = Class::REGIONS_MAX.div_ceil(64);

/// Whether memory of the slab was returned since a region was last taken: a bit of `quiet`.
const GONE: u8 = 1 << 7;

/// The value of `level` of a slab in no list.
pub const NO_LEVEL: u8 = u8::MAX;

/// Frees pages when there is no memory for their record. Kept apart from the code that every
/// program runs.
#[cold]
#[inline(never)]
fn give_up(addr: usize, pages: usize) {
    PAGE_HEAPS.free(addr, pages);
}

impl Slab {
    /// Where the record has the slab's address, and that of its shape.
    pub const FIELDS_AT: [usize; 2] = [offset_of!(Slab, addr), offset_of!(Slab, shape)];

    /// Bytes of the record of a slab of this shape.
    pub fn record_size(shape: &SlabShape) -> usize {
        size_of::<Slab>() + (shape.regions as usize).div_ceil(64) * 8
    }

    /// Makes a slab with all regions free, entered in the page map. `None` when memory is out.
    #[cfg(test)]
    pub fn make(class: Class, arena: u16) -> Option<&'static Slab> {
        Self::make_series(class, arena, 1)
    }

    /// Makes up to `max` adjacent slabs with all regions free, entered in the page map: as many as
    /// fit where one would have been placed. Returns the lowest, linked to the others in address
    /// order by `next`. `None` when memory is out.
    #[inline(never)]
    pub fn make_series(class: Class, arena: u16, max: usize) -> Option<&'static Slab> {
        let shape = class.shape();
        let pages = shape.pages as usize;
        let mut count = max;
        let request = RunRequest::new(pages, shape.align as usize);
        let run = crate::arena::heap_of(arena).alloc_series(request, &mut count)?;
        let (mut first, mut last) = (None, None::<&Slab>);
        for i in 0..count {
            let addr = run.addr + i * pages * PAGE;
            let Some(record) = meta::take(Self::record_size(shape)) else {
                give_up(addr, (count - i) * pages);
                break;
            };
            let slab = Self::describe(record, &Run { addr, ..run }, class, arena);
            match last.replace(slab) {
                Some(last) => last.next.set(Some(slab)),
                None => first = Some(slab),
            }
        }
        first
    }

    /// Writes the record of a slab and enters it in the page map.
    #[inline(always)]
    fn describe(record: NonNull<u8>, run: &Run, class: Class, arena: u16) -> &'static Slab {
        let shape = class.shape();
        let (regions, pages) = (shape.regions as usize, shape.pages as usize);
        let words = regions.div_ceil(64);
        let is_hardened = super::super::is_hardened(arena);
        if is_hardened && !run.zeroed {
            // A free block of such a slab is zero.
            // SAFETY: the run is new, and this long.
            unsafe { (run.addr as *mut u8).write_bytes(0, pages * PAGE) };
        }
        // SAFETY: the record has room for the header and `words` words behind it, is aligned to a
        // cache line, and nothing else uses it.
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
                next: Cell::new(None),
                prev: Cell::new(None),
                class,
                level: Cell::new(NO_LEVEL),
                quiet: Cell::new(0),
                bare: run.bare,
                fresh: run.zeroed,
                hardened: is_hardened,
                arena,
                free: Cell::new(regions as u16),
                max_free: Cell::new(0),
                hint: Cell::new(0),
                taker: Cell::new(None),
            });
            slab.as_ref()
        };
        SLABS.add(pages);
        poison::free(run.addr, pages * PAGE);
        slab.home().describe(
            run.addr,
            pages,
            slab.filed(),
            PageRecord::Slab(slab.record()),
        );
        slab
    }

    /// This slab and those linked to it by `next`.
    pub fn series(&'static self) -> impl Iterator<Item = &'static Slab> {
        core::iter::successors(Some(self), |slab| slab.next.get())
    }

    /// Pages of the slab if its memory was new to the process when it was made, else 0.
    pub fn new_pages(&self) -> usize {
        if self.fresh {
            self.shape.pages as usize
        } else {
            0
        }
    }

    /// Maps the pages of `count` adjacent new slabs at once that will soon be full, where they
    /// would otherwise fault in one by one. Not if there are other threads: the call keeps them
    /// from mapping memory, for milliseconds in call after call.
    pub fn fill(&self, count: usize) {
        if self.bare && !nodes::are_known() {
            mem::fill(self.addr, count * self.shape.pages as usize * PAGE);
        }
    }

    fn home(&self) -> &'static Segment {
        match Segment::find(self.addr) {
            Some(segment) => segment,
            None => die!("slab record at {:p} describes memory of no segment", self),
        }
    }

    /// Unmakes the slab: its pages go back to the page heap, its record to the metadata.
    ///
    /// # Safety
    /// All regions are free, the slab is in no list, and nothing refers to it.
    pub unsafe fn unmake(&'static self) {
        debug_assert!(self.is_empty() && self.level.get() == NO_LEVEL);
        let addr = self.addr;
        // SAFETY: as the caller says.
        let pages = unsafe { self.discard() };
        PAGE_HEAPS.free(addr, pages);
    }

    /// Unmakes this slab and those linked to it.
    ///
    /// # Safety
    /// As for [`Slab::unmake`], of all of them.
    #[cold]
    #[inline(never)]
    pub unsafe fn unmake_series(&'static self) {
        let mut series = Some(self);
        while let Some(slab) = series {
            series = slab.next.take();
            // SAFETY: as the caller says.
            unsafe { slab.unmake() };
        }
    }

    /// Discards the slab with all its regions: removes it from the page map, and returns its record
    /// to the metadata. Returns its number of pages, which the caller must free.
    ///
    /// # Safety
    /// The slab is in no list, nothing refers to it, and its regions are no longer used.
    // Inlined, because `unmake` frees a slab in the middle of a batch.
    #[inline(always)]
    pub unsafe fn discard(&'static self) -> usize {
        let pages = self.shape.pages as usize;
        self.home()
            .describe(self.addr, pages, Class::NONE, PageRecord::None);
        let size = Self::record_size(self.shape);
        // SAFETY: the record was taken with this size, and the caller drops the last reference.
        unsafe { meta::give(NonNull::from(self).cast::<u8>(), size) };
        SLABS.sub(pages);
        pages
    }

    /// The slab with its record at this address, from the page map.
    #[inline(always)]
    pub fn at(record: usize) -> &'static Slab {
        // SAFETY: the page map holds addresses of live slab records only.
        unsafe { &*(record as *const Slab) }
    }

    /// The slab with the region `p`, which a cache filed under `class`; ends the process if `p` is
    /// not in such a slab.
    #[inline(never)]
    pub fn of(p: usize, class: Class) -> &'static Slab {
        if let Some(segment) = Segment::find_first(p)
            && let PageRecord::Slab(at) = segment.record_of(p)
            && Slab::at(at).class == class
        {
            return Slab::at(at);
        }
        Self::of_further(p, class)
    }

    /// Like [`Slab::of`], in any segment of the address space.
    #[cold]
    #[inline(never)]
    fn of_further(p: usize, class: Class) -> &'static Slab {
        match Segment::find(p).and_then(|r| r.record_of(p).slab()) {
            Some(at) if Slab::at(at).class == class => Slab::at(at),
            _ => Misuse::NoBlock.die(p),
        }
    }

    /// The slab at `p`, for a thread that has no block there. The slab lives while the records are
    /// kept as they are, and its class and arena never change. All else of it is guarded by the
    /// lock of its bin.
    pub fn seen<'a>(kept: &'a Kept, segment: &Segment, p: usize) -> Option<&'a Slab> {
        segment.read_record(kept, p).slab().map(Slab::at)
    }

    /// Enters in the page map whether the block at `p`, which lies in a slab, is sampled. A page
    /// where sampled blocks begin is filed under no class, so that frees of its blocks take the
    /// slow path. For the holder of the block; one thread at a time.
    #[inline(never)]
    pub fn watch(p: usize, mark: Mark) {
        let Some(segment) = Segment::find(p) else {
            return;
        };
        let (slab, before) = match segment.record_of(p) {
            PageRecord::Slab(slab) => (slab, None),
            PageRecord::Watched { slab, sampled } => (slab, Some(sampled)),
            _ => return,
        };
        let after = match mark {
            Mark::Sampled => Some(Beginning::with(before, p % PAGE)),
            Mark::Ordinary => before.and_then(Beginning::less),
        };
        let (class, record) = match after {
            Some(sampled) => (Class::NONE, PageRecord::Watched { slab, sampled }),
            None => (Slab::at(slab).filed(), PageRecord::Slab(slab)),
        };
        segment.describe_anew(p, class, record);
    }

    /// The address and the class of the slab whose record was seen at this address, and whether its
    /// blocks are hardened, for a thread that may have no block there. If the slab was unmade
    /// meanwhile, they are those of anything: the caller looks whether the record is still in the
    /// page map.
    #[inline(always)]
    pub fn glimpse(record: usize) -> (usize, Class, bool) {
        let slab = record as *const Slab;
        // SAFETY: records stay mapped, and any bytes are valid for these types. Volatile, because
        // another thread may write there.
        unsafe {
            let addr = (&raw const (*slab).addr).read_volatile();
            let class = (&raw const (*slab).class).read_volatile();
            let hardened = (&raw const (*slab).hardened).cast::<u8>().read_volatile();
            fence(Ordering::Acquire);
            (addr, class, hardened != 0)
        }
    }

    /// The address of its record.
    pub fn record(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    pub fn class(&self) -> Class {
        self.class
    }

    /// The class that its pages are filed under.
    fn filed(&self) -> Class {
        if self.hardened {
            Class::NONE
        } else {
            self.class
        }
    }

    /// The place of the block at `p`, which lies in this slab, and whether it is the first; `None`
    /// if blocks of the slab are not hardened.
    #[inline(always)]
    pub fn place_of(&self, p: usize) -> Option<Result<(WordPlace, bool), Misuse>> {
        if !self.hardened {
            return None;
        }
        let offset = p - self.addr;
        if self.shape.region_at(offset).is_none() {
            return Some(Err(self.misuse(p)));
        }
        let bytes = self.shape.size as usize;
        Some(Ok((WordPlace { at: p, bytes }, offset == 0)))
    }

    #[cfg(test)]
    pub fn shape(&self) -> &'static SlabShape {
        self.shape
    }

    pub fn arena(&self) -> u16 {
        self.arena
    }

    /// The number of free regions.
    pub fn free(&self) -> usize {
        self.free.get() as usize
    }

    pub fn is_empty(&self) -> bool {
        self.free.get() == self.shape.regions
    }

    /// The list for a slab with this fullness; [`NO_LEVEL`] if no region is free, or all are.
    #[inline]
    pub fn fitting_level(&self) -> u8 {
        if self.free.get() == 0 || self.is_empty() {
            return NO_LEVEL;
        }
        let used = self.shape.regions - self.free.get();
        self.shape.eighths(used as usize) as u8
    }

    /// The list that it is in, or [`NO_LEVEL`].
    pub fn level(&self) -> u8 {
        self.level.get()
    }

    /// Sets the list of its bin that the slab is in.
    pub fn set_level(&self, level: u8) {
        self.level.set(level);
        self.max_free.set(if level == NO_LEVEL {
            0
        } else {
            let least_used = self.shape.least_at(level as usize).max(1);
            self.shape.regions - least_used as u16
        });
    }

    /// Whether it has so many free regions that it belongs in another list.
    #[inline]
    pub fn is_sparser_than_filed(&self) -> bool {
        self.free.get() > self.max_free.get()
    }

    /// The number of passes that found it untouched.
    pub fn quiet(&self) -> u8 {
        self.quiet.get() & !GONE
    }

    pub fn set_quiet(&self, passes: u8) {
        self.quiet.set(self.quiet.get() & GONE | passes);
    }

    /// Records that memory of it was returned.
    pub fn lose(&self) {
        self.quiet.set(self.quiet.get() | GONE);
    }

    pub fn regions(&self) -> usize {
        self.shape.regions as usize
    }

    fn words(&self) -> usize {
        (self.shape.regions as usize).div_ceil(64)
    }

    /// A word of the bitmap, one of [`Slab::words`].
    #[inline]
    fn word(&self, i: usize) -> &Cell<u64> {
        debug_assert!(i < self.words());
        let bitmap = self.record() + size_of::<Slab>();
        // SAFETY: `describe` put this many words behind the record, which live as long as it; the
        // page map holds the record's address as an integer, which stands for all of it.
        unsafe { &*(bitmap as *const Cell<u64>).add(i) }
    }

    /// Takes free regions in ascending order until `out` is full or none is left.
    #[inline(never)]
    pub fn take(&self, out: &mut [usize]) -> usize {
        let size = self.shape.size as usize;
        let words = self.words();
        let mut n = 0;
        let mut word = self.hint.get() as usize;
        while n < out.len() && word < words {
            let mut bits = self.word(word).get();
            let base = self.addr + word * 64 * size;
            if bits | bits.wrapping_sub(1) == u64::MAX {
                // All free from the lowest on, as in a new slab: each follows the one before.
                let first = bits.trailing_zeros() as usize;
                let end = out.len().min(n + 64 - first);
                let mut p = base + first * size;
                while n < end {
                    hint::step_by_step();
                    out[n] = p;
                    p += size;
                    bits &= bits << 1;
                    n += 1;
                }
            }
            while bits != 0 && n < out.len() {
                out[n] = base + bits.trailing_zeros() as usize * size;
                bits &= bits - 1;
                n += 1;
            }
            self.word(word).set(bits);
            if bits == 0 {
                word += 1;
            }
        }
        self.hint.set(word as u16);
        self.free.set(self.free.get() - n as u16);
        if self.quiet.replace(0) & GONE != 0 {
            self.retake(n);
        }
        n
    }

    /// Called when `taken` regions were taken, and memory of the slab was returned before. More
    /// will be: counts all of its pages without blocks.
    #[cold]
    #[inline(never)]
    fn retake(&self, taken: usize) {
        let bytes = self.bare_bytes() + taken * self.shape.size as usize;
        if let Some(heap) = PAGE_HEAPS.of(self.addr) {
            heap.retake_behind(bytes / PAGE);
        }
    }

    /// Ends the process unless a region begins at `p`, which lies in the slab.
    pub fn expect_region(&self, p: usize) {
        if self.shape.region_at(p - self.addr).is_none() {
            self.misuse(p).die(p);
        }
    }

    /// Takes regions back, up to the first that is invalid, which is returned; `shape` is the
    /// slab's own, which the caller has at hand for many slabs.
    #[inline(always)]
    pub fn give(&self, shape: &SlabShape, blocks: &[usize]) -> Result<(), Wrong> {
        let given = match blocks {
            // The fast path for blocks freed at random.
            &[p] => self.give_one(shape, p) as usize,
            _ => self.give_several(shape, blocks),
        };
        // Update the count before reporting a misuse: code that ends the process may still
        // allocate.
        self.free.set(self.free.get() + given as u16);
        self.quiet.set(self.quiet.get() & GONE);
        match blocks.get(given) {
            None => Ok(()),
            Some(&p) => Err(Wrong(p, self.misuse(p))),
        }
    }

    /// What is wrong with a free of `p`, which lies in the slab and in no region in use that begins
    /// there.
    #[cold]
    #[inline(never)]
    pub fn misuse(&self, p: usize) -> Misuse {
        let (offset, size) = (p - self.addr, self.shape.size as usize);
        match offset % size {
            _ if offset / size >= self.regions() => Misuse::NoBlock,
            0 => Misuse::Double(size),
            into => Misuse::Inside(into, size),
        }
    }

    #[inline(always)]
    fn give_one(&self, shape: &SlabShape, p: usize) -> bool {
        let Some(i) = shape.region_at(p - self.addr) else {
            return false;
        };
        let word = self.word(i / 64);
        let (before, after) = (word.get(), word.get() | 1 << (i % 64));
        word.set(after);
        self.hint.set(self.hint.get().min(i as u16 / 64));
        before != after
    }

    /// Like [`Slab::give_one`], for several blocks; returns how many were taken back.
    ///
    /// Keeps a word of the bitmap in a register while blocks fall into it: blocks freed together
    /// often lie together, and each would wait for the store of the one before.
    #[inline(never)]
    fn give_several(&self, shape: &SlabShape, blocks: &[usize]) -> usize {
        let addr = self.addr;
        let region_of = |number: usize| blocks.get(number).and_then(|p| shape.region_at(p - addr));
        let mut lowest = self.hint.get();
        let (mut given, mut next) = (0, region_of(0));
        while let Some(mut i) = next {
            let at = i / 64;
            let word = self.word(at);
            let mut bits = word.get();
            loop {
                let with = bits | 1 << (i % 64);
                if with == bits {
                    next = None;
                    break;
                }
                (given, bits) = (given + 1, with);
                next = region_of(given);
                match next {
                    Some(other) if other / 64 == at => i = other,
                    _ => break,
                }
            }
            word.set(bits);
            lowest = lowest.min(at as u16);
        }
        self.hint.set(lowest);
        given
    }

    /// Moves all free regions from the bitmap to a copy, so that none is handed out.
    pub fn hide_free(&self, hidden: &mut [u64; WORDS]) {
        for (i, copy) in hidden.iter_mut().enumerate().take(self.words()) {
            *copy = self.word(i).take();
        }
        self.hint.set(self.words() as u16);
        self.free.set(0);
    }

    /// Moves the hidden regions back from the copy to the bitmap.
    pub fn show_free(&self, hidden: &[u64; WORDS]) -> Result<(), Wrong> {
        let mut n = 0;
        for (i, &copy) in hidden.iter().enumerate().take(self.words()) {
            let word = self.word(i);
            let twice = word.get() & copy;
            if twice != 0 {
                let region = i * 64 + twice.trailing_zeros() as usize;
                let p = self.addr + region * self.shape.size as usize;
                return Err(Wrong(p, self.misuse(p)));
            }
            word.set(word.get() | copy);
            n += copy.count_ones() as u16;
        }
        self.hint.set(0);
        self.free.set(self.free.get() + n);
        Ok(())
    }

    /// Copies the bitmap.
    pub fn free_regions(&self, copy: &mut [u64; WORDS]) {
        (0..self.words()).for_each(|i| copy[i] = self.word(i).get());
    }

    /// The pages of the slab, within its chunk, that only free regions overlap: whole pages of the
    /// system.
    pub fn bare_pages(&self, free: &[u64; WORDS]) -> Bits512 {
        let (size, regions) = (self.shape.size as usize, self.shape.regions as usize);
        let is_free = |i: usize| free[i / 64] & 1 << (i % 64) != 0;
        let (first, bare) = (self.addr % CHUNK / PAGE, Bits512::empty());
        for page in 0..self.pages() {
            let (from, last) = (page * PAGE / size, ((page + 1) * PAGE - 1) / size);
            if (from..=last.min(regions - 1)).all(is_free) {
                bare.set(first + page, 1);
            }
        }
        bare.keep_groups(mem::os_page() / PAGE);
        bare
    }

    pub fn addr(&self) -> usize {
        self.addr
    }

    pub fn pages(&self) -> usize {
        self.shape.pages as usize
    }
}
