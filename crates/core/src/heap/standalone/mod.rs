//! Standalone blocks: runs that have a mapping of their own.
//!
//! A block of 128 MiB or more costs the same whatever its length: it has one record, in a segment
//! of its own (`space::segment::standalone`), where a run of chunks would have one for each. Its
//! memory is mapped when it is made, unmapped when it is freed, unless the program is likely to
//! need it again (`kept`), and remapped when its length changes.
//!
//! The system is asked whether it would grant the memory, as it is by an allocator that maps
//! without `MAP_NORESERVE`. The mapping itself does not count against the system's limits, so a
//! process with long untouched blocks can fork.
//!
//! Blocks with an alignment of 128 MiB or more are standalone too: the gaps before them are then
//! addresses that the heap has no records for.
//!
//! Where extent hooks provide memory, a long block is an extent of its own, which is given back
//! whole. If the hooks refuse that, it becomes an ordinary extent of free chunks.

mod kept;

use crate::heap::huge::{borders, huge_pages};
use crate::heap::{BELL, Contents, PageHeap, Run, RunRequest, State};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES};
use crate::space::segment::{self, Growing, Provider};
use crate::sys::atomic::Ordering;
use crate::sys::mem::{self, round_up};
use crate::sys::moves::{self, Moved};
use crate::sys::page::PAGE;
use crate::sys::time;
use kept::Kept;

/// Bytes of the shortest block, and of the smallest alignment, for which a block is standalone. A
/// shorter run needs up to eight pages of chunk records.
const BYTES_MIN: usize = 128 << 20;
/// Chunks of the shortest standalone block.
pub(in crate::heap) const CHUNKS_MIN: usize = BYTES_MIN / CHUNK;

/// The standalone blocks of a page heap.
pub(in crate::heap) struct Standalone {
    /// Pages of the blocks' mappings.
    pub pages: usize,
    /// The list of standalone blocks, in a heap that serves a single arena.
    first: Option<&'static Segment>,
    /// Mappings of freed blocks.
    pub kept: Kept,
}

impl Standalone {
    pub const fn new() -> Standalone {
        Standalone {
            pages: 0,
            first: None,
            kept: Kept::new(),
        }
    }

    /// Pages of all mappings.
    pub fn committed(&self) -> usize {
        self.pages + self.kept.pages()
    }

    fn list(&self) -> impl Iterator<Item = &'static Segment> + use<> {
        core::iter::successors(self.first, |segment| segment.next_hooked())
    }

    fn add(&mut self, segment: &'static Segment, is_listed: bool) {
        self.pages += segment.block_pages();
        if is_listed {
            segment.set_next_hooked(self.first.replace(segment));
        }
    }

    fn remove(&mut self, segment: &'static Segment, is_listed: bool) {
        self.pages -= segment.block_pages();
        if !is_listed {
            return;
        }
        let next = segment.next_hooked();
        let is_before = |r: &&Segment| r.next_hooked().is_some_and(|n| core::ptr::eq(n, segment));
        let before = self.list().find(is_before);
        match before {
            Some(before) => before.set_next_hooked(next),
            None => self.first = next,
        }
    }
}

/// Bytes of the mapping of a block of this length.
#[inline(never)]
fn bytes_of(pages: usize) -> usize {
    round_up(pages * PAGE, mem::os_page())
}

/// The segment of the standalone block at `addr`, if there is one.
#[inline(always)]
pub(in crate::heap) fn of(addr: usize) -> Option<&'static Segment> {
    match Segment::find_first(addr) {
        Some(_) => None,
        None => outside_first(addr),
    }
}

#[cold]
#[inline(never)]
fn outside_first(addr: usize) -> Option<&'static Segment> {
    Segment::find(addr).filter(|segment| segment.is_standalone())
}

/// Bytes up to which a block that grows stays in chunks, if it grows to twice its length at most.
const GROWN_BYTES_MAX: usize = 1 << 30;

/// Whether a run that grows from `old` to `new` pages becomes standalone, because it would need
/// records of too many chunks.
pub(in crate::heap) fn takes_over(old: usize, new: usize) -> bool {
    serves(new, 1) && (new / 2 > old || new > GROWN_BYTES_MAX / PAGE)
}

/// Whether a run of this length and alignment is standalone.
#[inline]
pub(in crate::heap) fn serves(pages: usize, align: usize) -> bool {
    pages >= CHUNKS_MIN * CHUNK_PAGES || align >= BYTES_MIN
}

/// Whether the system grants a mapping of this length, as far as it needs to be asked.
#[inline(never)]
pub(in crate::heap) fn may_map(bytes: usize) -> bool {
    bytes < BYTES_MIN || mem::is_granted(bytes)
}

/// Addresses for a mapping of this length, with the record of its block.
fn make(
    growing: &Growing,
    heap: &PageHeap,
    pages: usize,
    align: usize,
) -> Option<&'static Segment> {
    let bytes = bytes_of(pages);
    let addr = mem::reserve_aligned(bytes, align)?;
    let made = Segment::adopt_block(growing, heap.id, addr, pages, Provider::System);
    if made.is_none() {
        mem::release(addr, bytes);
    }
    made
}

/// Gives up a record, and the addresses.
#[inline(never)]
fn unmake(segment: &'static Segment) {
    let (addr, bytes) = (segment.heap(), bytes_of(segment.block_pages()));
    // SAFETY: the block was never handed out, or is freed: nothing refers to its segment.
    unsafe { segment.abandon() };
    if !mem::release(addr, bytes) {
        // Its neighbours were merged with it, and cannot be parted. The addresses are lost.
        mem::discard(addr, bytes);
    }
}

/// When the mapping of a freed block goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::heap) enum Release {
    AtOnce,
    /// When it has decayed, unless the heap returns memory at once.
    Later,
}

impl PageHeap {
    /// Allocates a standalone run. It is zero unless any contents serve. Returns `None` when the
    /// system grants no memory or has no addresses.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn alloc_standalone(&self, request: &RunRequest) -> Option<Run> {
        let &RunRequest { pages, wanted, .. } = request;
        if pages > isize::MAX as usize / PAGE {
            return None;
        }
        let align = request.align.max(CHUNK);
        if let Some(addr) = self.take_kept(pages, align) {
            return Some(Run {
                addr,
                zeroed: request.contents == Contents::Zeros && mem::discard(addr, bytes_of(pages)),
                bare: false,
            });
        }
        let segment = self.map(pages, wanted, align).or_else(|| {
            let any = self.give_kept_back();
            any.then(|| self.map(pages, wanted, align)).flatten()
        })?;
        self.admit(segment);
        Some(Run {
            addr: segment.heap(),
            zeroed: true,
            bare: false,
        })
    }

    fn map(&self, pages: usize, wanted: usize, align: usize) -> Option<&'static Segment> {
        if !may_map(bytes_of(wanted)) {
            return None;
        }
        let segment = make(&segment::growing(), self, pages, align)?;
        if !mem::commit(segment.heap(), bytes_of(pages)) {
            unmake(segment);
            return None;
        }
        Some(segment)
    }

    /// The mapping of a freed block.
    fn take_kept(&self, pages: usize, align: usize) -> Option<usize> {
        let now = time::now_ms();
        let mut s = self.state.lock_seldom();
        let taken = s.standalone.kept.take(pages, align, now);
        if let Some(segment) = taken {
            fit(segment, pages);
            s.standalone.add(segment, self.apart);
        }
        let used = s.standalone.pages + if taken.is_none() { pages } else { 0 };
        let mut surplus = s.standalone.kept.surplus(used);
        drop(s);
        while let Some(segment) = surplus {
            self.unmake_kept(segment);
            surplus = self.state.lock_seldom().standalone.kept.surplus(used);
        }
        taken.map(Segment::heap)
    }

    /// Gives the mappings of all freed blocks back; returns whether there were any.
    pub(in crate::heap) fn give_kept_back(&self) -> bool {
        let mut any = false;
        loop {
            let kept = self.state.lock_seldom().standalone.kept.any();
            let Some(segment) = kept else { return any };
            self.unmake_kept(segment);
            any = true;
        }
    }

    /// Gives the mapping of a freed block back.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn unmake_kept(&self, segment: &'static Segment) {
        let mut s = self.state.lock_seldom();
        drop_huge(segment, segment.block_pages());
        s.totals.dirty_purged.pages += segment.block_pages() as u64;
        s.totals.dirty_purged.advices += 1;
        drop(s);
        unmake(segment);
    }

    /// Asks for the huge pages of a new block's mapping, and counts the block.
    fn admit(&self, segment: &'static Segment) {
        let bytes = bytes_of(segment.block_pages());
        self.count(segment, huge_pages::advise_block(segment.heap(), bytes));
    }

    /// Counts a block in.
    #[inline(never)]
    fn count(&self, segment: &'static Segment, huge: bool) {
        let mut s = self.state.lock_seldom();
        s.standalone.add(segment, self.apart);
        set_huge(segment, huge, segment.block_pages());
    }

    /// Counts a block out.
    #[inline(never)]
    fn dismiss(&self, segment: &'static Segment) {
        let mut s = self.state.lock_seldom();
        drop_huge(segment, segment.block_pages());
        s.standalone.remove(segment, self.apart);
    }

    /// Frees a standalone block of this heap. Its mapping goes back at once, or may be kept for the
    /// next block.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_standalone(&self, segment: &'static Segment, release: Release) {
        if segment.is_hooked() {
            self.dismiss(segment);
            return self.give_block_back(segment);
        }
        let at_once = self.at_once.load(Ordering::Relaxed) || self.is_fenced();
        if release == Release::AtOnce || self.apart || at_once {
            self.dismiss(segment);
            return unmake(segment);
        }
        let now = time::now_ms();
        let mut s = self.state.lock_seldom();
        s.standalone.remove(segment, false);
        let used = s.standalone.pages;
        let dirty = s.totals.dirty + s.standalone.kept.pages() + segment.block_pages();
        let in_use = s.totals.used + used;
        let is_kept =
            s.watch.over(dirty, in_use).is_none() && s.standalone.kept.keep(segment, used, now);
        drop(s);
        if is_kept {
            self.ever_freed.store(true, Ordering::Relaxed);
            BELL.ring();
        } else {
            self.unmake_kept(segment)
        }
    }

    /// Changes the length of a standalone block's mapping in place; returns whether it could. A
    /// block of less than a chunk is better off elsewhere.
    pub(in crate::heap) fn resize_standalone(
        &self,
        segment: &'static Segment,
        pages: usize,
    ) -> bool {
        let old = segment.block_pages();
        let more = bytes_of(pages).saturating_sub(bytes_of(old));
        if segment.is_hooked() || pages < CHUNK_PAGES || more > 0 && !mem::is_granted(more) {
            return false;
        }
        if !mem::resize_mapping(segment.heap(), bytes_of(old), bytes_of(pages)) {
            return false;
        }
        let mut s = self.state.lock_seldom();
        let huge = segment.chunk(0).huge.get();
        drop_huge(segment, old);
        set_huge(segment, huge, pages);
        s.standalone.pages = s.standalone.pages - old + pages;
        segment.set_block_pages(pages);
        true
    }

    /// Moves the memory of a standalone block of this heap to a longer mapping that belongs to
    /// `heap`; returns its address. The old block is gone then, its records too.
    pub(in crate::heap) fn relocate_standalone(
        &self,
        heap: &PageHeap,
        segment: &'static Segment,
        pages: usize,
    ) -> Option<usize> {
        let (old, bytes) = (bytes_of(segment.block_pages()), bytes_of(pages));
        if segment.is_hooked() || heap.has_hooks() || !mem::is_granted(bytes.checked_sub(old)?) {
            return None;
        }
        let huge = segment.chunk(0).huge.get();
        self.dismiss(segment);
        let Some(to) = move_mapping(heap, segment, old, pages) else {
            self.count(segment, huge);
            return None;
        };
        heap.admit(to);
        Some(to.heap())
    }

    /// Moves an ordinary block of this heap to the beginning of a new standalone block, if it is a
    /// single mapping.
    pub(in crate::heap) fn move_to_standalone(
        &self,
        (from, bytes): (usize, usize),
        to: &'static Segment,
    ) -> (usize, Moved) {
        let wide = bytes_of(to.block_pages());
        let (moved, how) = self.move_out((from, bytes), (to.heap(), wide));
        // The mapping has the advice of the old one now, or none.
        huge_pages::advise_block(to.heap(), wide);
        (moved, how)
    }

    /// Calls `f` with each standalone block of a heap that serves a single arena; `f` may free the
    /// blocks that it was called with before.
    pub(in crate::heap) fn each_standalone(&self, mut f: impl FnMut(&'static Segment)) {
        let first = self.state.lock_seldom().standalone.first;
        let mut next = first;
        while let Some(segment) = next {
            next = segment.next_hooked();
            f(segment);
        }
    }

    /// Adopts an extent that hooks provided for one block; see `alloc_from_hooks`.
    pub(in crate::heap) fn adopt_standalone(
        &self,
        addr: usize,
        zeroed: bool,
        pages: usize,
    ) -> Option<Run> {
        let growing = segment::growing();
        let segment = Segment::adopt_block(&growing, self.id, addr, pages, Provider::Hooks)?;
        drop(growing);
        self.count(segment, false);
        Some(Run {
            addr,
            zeroed,
            bare: false,
        })
    }

    fn give_block_back(&self, segment: &'static Segment) {
        let (addr, chunks) = (segment.heap(), segment.block_pages() / CHUNK_PAGES);
        // First, because the system may give the addresses to another thread's hook at once.
        // SAFETY: the block is freed.
        unsafe { segment.abandon() };
        self.give_extent_back(addr, chunks);
    }
}

impl State {
    /// A mapping of a freed block that is due to be given back.
    #[inline(always)]
    pub(in crate::heap) fn kept_due(&mut self, now: u64) -> Option<&'static Segment> {
        match self.standalone.kept.pages() {
            0 => None,
            _ => self.standalone.kept.due(now, self.dirty.time_ms()),
        }
    }

    /// When the next one is due.
    #[inline(always)]
    pub(in crate::heap) fn kept_next_due(&self) -> Option<u64> {
        match self.standalone.kept.pages() {
            0 => None,
            _ => self.standalone.kept.next_due(self.dirty.time_ms()),
        }
    }
}

/// Moves the `old` bytes of a block's mapping to a longer one. The old block is gone then.
fn move_mapping(
    heap: &PageHeap,
    segment: &'static Segment,
    old: usize,
    pages: usize,
) -> Option<&'static Segment> {
    // Held until the old record is gone: the system may give its addresses away at once.
    let growing = segment::growing();
    let to = make(&growing, heap, pages, CHUNK)?;
    match moves::move_away(segment.heap(), old, to.heap(), bytes_of(pages)) {
        Moved::Yes | Moved::Torn => {
            // SAFETY: the block has moved: nothing refers to its old segment.
            unsafe { segment.abandon() };
            Some(to)
        }
        // Its addresses may be another mapping's: they are lost.
        Moved::Lost => None,
        Moved::No | Moved::Emptied => {
            unmake(to);
            None
        }
    }
}

/// Cuts the mapping of a freed block to this length. What cannot be cut off holds no memory.
fn fit(segment: &Segment, pages: usize) {
    let (addr, old, new) = (segment.heap(), segment.block_pages(), bytes_of(pages));
    if mem::resize_mapping(addr, bytes_of(old), new) {
        let huge = segment.chunk(0).huge.get();
        drop_huge(segment, old);
        segment.set_block_pages(pages);
        set_huge(segment, huge, pages);
    } else {
        mem::discard(addr + new, bytes_of(old) - new);
    }
}

/// Records that no huge pages are asked for in a block of this length any more.
fn drop_huge(segment: &Segment, pages: usize) {
    set_huge(segment, false, pages);
}

/// Records whether huge pages are asked for in a block of this length, under its heap's lock.
#[inline(never)]
fn set_huge(segment: &Segment, huge: bool, pages: usize) {
    let chunk = segment.chunk(0);
    let chunks = (pages / CHUNK_PAGES) as isize;
    borders::count_huge((huge as isize - chunk.huge.replace(huge) as isize) * chunks);
}

#[cfg(test)]
mod tests;
