//! Blocks of whole pages, straight from the page heap.
//!
//! The page map's record of the first page is the only description of such a block. Its length is
//! that of its class, so that all blocks of a class are alike and caches can keep them, up to
//! [`CACHED_MAX`](crate::class::CACHED_MAX). Beyond that size, an option makes blocks end with the
//! last page needed. Blocks of a chunk or more are moved by remapping their pages. The longest ones
//! have a mapping of their own (`heap::standalone`).
//!
//! Blocks of up to [`MEDIUM_MAX`] bytes that need no page alignment begin some lines into a page, a
//! different number each ([`spread`]), and have an extra page, while an arena has few of them.
//! Otherwise, the data that programs keep at the start of their buffers would all fall into one set
//! of the first-level cache.

use super::Arena;
use super::misuse::Misuse;
use super::pages::{self, LARGE, Pages};
use crate::class::{Class, MEDIUM_MAX};
pub use crate::heap::Reach;
use crate::heap::{Backing, Contents, PAGE_HEAPS, Run, RunRequest};
use crate::space::Segment;
use crate::space::chunk::CHUNK;
use crate::space::segment::{LargeState, PageRecord, kept};
use crate::sys::atomic::{AtomicBool, Ordering, settle};
use crate::sys::mem::round_up;
use crate::sys::moves::Moved;
use crate::sys::page::{LINE, PAGE};
use crate::sys::poison;

/// Option: blocks begin at various lines of their pages.
static SPREAD: AtomicBool = AtomicBool::new(true);

/// Whether an arena has its own size from which freed blocks return their memory at once.
static SINGLED_OUT: AtomicBool = AtomicBool::new(false);

/// From now on, a freed block may have to return its memory at once ([`Arena::set_oversize`]).
pub(super) fn single_out() {
    SINGLED_OUT.store(true, Ordering::Relaxed);
}

/// Sets whether blocks that caches do not hold are as long as the pages needed or as their class,
/// and whether blocks that threads keep begin at various lines of their pages.
pub fn configure(whole_pages: bool, spread: bool) {
    pages::set_whole(whole_pages);
    settle!(SPREAD, spread);
}

/// The number of lines that blocks begin at. It is less than the lines of a page, and prime, so
/// that adjacent runs of equal length begin at different ones.
const LINES: usize = 61;

/// The line in the first page of this run at which its block begins; never the page's first.
fn spread(run: usize) -> usize {
    1 + run / PAGE % LINES
}

/// The most extra pages of an arena's blocks. A program that uses so many of these blocks that more
/// of them lie side by side at the same lines does not fit in the caches that this is about.
pub(super) const SPREAD_PAGES_MAX: usize = 64;

/// Whether a further block of an arena may have an extra page.
fn may_spread(arena: u16) -> bool {
    let has_room =
        |counts: &pages::Counts| counts.spread.load(Ordering::Relaxed) < SPREAD_PAGES_MAX;
    SPREAD.load(Ordering::Relaxed) && super::large_counts(arena).is_none_or(has_room)
}

/// Counts a block of `pages` pages that was made, with `spread` extra pages in its run.
fn count_taken(arena: u16, pages: usize, spread: usize) {
    if let Some(counts) = super::large_counts(arena) {
        counts.of(pages).take();
        if spread > 0 {
            counts.spread.fetch_add(spread, Ordering::Relaxed);
        }
        if pages::may_be_short() {
            counts.adjust(0, pages);
        }
    }
}

/// Counts a block of `pages` pages that was freed, with `spread` extra pages in its run.
fn count_given(arena: u16, pages: usize, spread: usize) {
    if let Some(counts) = super::large_counts(arena) {
        counts.of(pages).give();
        if spread > 0 {
            counts.spread.fetch_sub(spread, Ordering::Relaxed);
        }
        if pages::may_be_short() {
            counts.adjust(pages, 0);
        }
    }
}

/// Makes a block of this length at a multiple of `align` bytes, if that is more than [`LINE`].
/// Prefers free memory that fits, else takes fresh memory.
pub fn alloc(pages: impl Into<Pages>, align: usize, arena: u16) -> Option<Run> {
    alloc_fit(pages.into(), align, arena, Contents::Zeros)
}

/// Like [`alloc`]. Where any contents serve, memory that was freed elsewhere is preferred.
pub fn alloc_fit(pages: Pages, align: usize, arena: u16, contents: Contents) -> Option<Run> {
    let Pages { len: pages, wanted } = pages;
    let home = home_of(arena)?;
    let is_spread = align <= LINE && pages <= MEDIUM_MAX / PAGE && may_spread(arena);
    let len = pages + is_spread as usize;
    let mut run = home.heap().alloc_run(RunRequest {
        pages: len,
        wanted,
        align: align.max(PAGE),
        contents,
    })?;
    poison::used(run.addr, len * PAGE);
    let line = if is_spread { spread(run.addr) } else { 0 };
    run.addr += line * LINE;
    enter(home, run.addr, pages, len - pages, arena, run.zeroed);
    Some(run)
}

/// Returns the arena with this number, and makes it if needed: a program's first large block may
/// come before any thread has a cache, and so before its arena. A block that its arena did not
/// count would still be counted when freed.
#[inline(always)]
fn home_of(arena: u16) -> Option<&'static Arena> {
    let index = arena as usize;
    super::record(index).or_else(|| super::numbered(index))
}

/// Describes and counts a new block of `pages` pages, with `spread` extra pages in its run.
#[inline(always)]
fn enter(home: &Arena, p: usize, pages: usize, spread: usize, arena: u16, zeroed: bool) {
    describe(p, pages, arena);
    LARGE.add(pages);
    count_taken(arena, pages, spread);
    if zeroed {
        home.grew(pages);
    }
}

fn describe(p: usize, pages: usize, arena: u16) {
    if let Some(segment) = Segment::find(p) {
        describe_as(segment, p, pages, arena, LargeState::Plain);
    }
}

fn describe_as(segment: &Segment, p: usize, pages: usize, arena: u16, state: LargeState) {
    let class = Class::of(pages * PAGE);
    let filed = if class.is_cachable() && state != LargeState::Sampled && !super::is_hardened(arena)
    {
        debug_assert_eq!(class.pages(), pages);
        class
    } else {
        Class::NONE
    };
    segment.describe(
        p,
        1,
        filed,
        PageRecord::Large {
            pages,
            arena: arena as usize,
            line: p % PAGE / LINE,
            state,
        },
    );
}

/// Marks blocks that come into a transfer cache. Ends the process if one of them is in such a cache
/// already, or is no block.
#[inline(never)]
pub fn keep_all(blocks: &[usize]) {
    kept::mark_all(blocks, keep_other);
}

/// Like [`keep_all`], for a block that is sampled, or in another segment, or none at all.
#[cold]
#[inline(never)]
fn keep_other(p: usize) {
    let (segment, pages, arena) = find(p, Purpose::Free);
    describe_as(segment, p, pages, arena, LargeState::Kept);
}

/// Takes the mark off blocks that leave a transfer cache for a program.
#[inline(never)]
pub fn unkeep_all(blocks: &[usize]) {
    kept::unmark_all(blocks, unkeep_other);
}

#[cold]
#[inline(never)]
fn unkeep_other(p: usize) {
    if let Some((segment, pages, arena, _)) = look(p) {
        describe_as(segment, p, pages, arena, LargeState::Plain);
    }
}

/// The bytes of the large block that begins at `p`, if there is one.
pub fn bytes_if_any(p: usize) -> Option<usize> {
    look(p).map(|(_, pages, ..)| pages * PAGE)
}

/// The bytes of the large block at `p`; ends the process if there is none.
pub fn bytes_of(p: usize) -> usize {
    pages_of(p).0 * PAGE
}

/// Marks a large block in use as sampled, so that no cache takes it.
pub fn set_sampled(p: usize) {
    let (segment, pages, arena) = find(p, Purpose::Use);
    describe_as(segment, p, pages, arena, LargeState::Sampled);
}

/// Marks a sampled large block as an ordinary one again.
pub fn clear_sampled(p: usize) {
    let (_, pages, arena) = find(p, Purpose::Use);
    describe(p, pages, arena);
}

/// Whether `p` is a large block that is sampled.
pub fn is_sampled(p: usize) -> bool {
    look(p).is_some_and(|(.., state)| state == LargeState::Sampled)
}

/// The pages and the arena of the large block at `p`; ends the process if there is none.
pub fn pages_of(p: usize) -> (usize, u16) {
    let (_, pages, arena) = find(p, Purpose::Use);
    (pages, arena)
}

/// Like [`pages_of`], for a block about to be freed.
pub fn check_free(p: usize) -> (usize, u16) {
    let (_, pages, arena) = find(p, Purpose::Free);
    (pages, arena)
}

/// What a block is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Use,
    Free,
}

/// The large block that begins at `p`, if there is one: its segment, its pages, its arena and what
/// it is.
#[inline(always)]
fn look(p: usize) -> Option<(&'static Segment, usize, u16, LargeState)> {
    let segment = Segment::find(p)?;
    match segment.record_of(p) {
        PageRecord::Large {
            pages,
            arena,
            line,
            state,
        } if p % PAGE == line * LINE => Some((segment, pages, arena as u16, state)),
        _ => None,
    }
}

/// The large block in use at `p`: its segment, its pages and its arena. Ends the process if there
/// is none.
fn find(p: usize, purpose: Purpose) -> (&'static Segment, usize, u16) {
    match look(p) {
        Some((segment, pages, arena, state)) if state != LargeState::Kept => {
            (segment, pages, arena)
        }
        _ => match purpose {
            Purpose::Use => misuse(p).die_in_use(p),
            Purpose::Free => misuse(p).die(p),
        },
    }
}

/// What is wrong with a free of `p`, where no block in use begins.
#[cold]
#[inline(never)]
pub fn misuse(p: usize) -> Misuse {
    let Some(segment) = Segment::find(p) else {
        return Misuse::Foreign;
    };
    // The records of all pages below are there. Those inside a run are empty.
    let heap = segment.heap();
    let mut page = p - p % PAGE;
    loop {
        match segment.record_of(page) {
            PageRecord::None => {}
            PageRecord::Large { pages, line, .. } => {
                let into = p.wrapping_sub(page + line * LINE);
                if into == 0 {
                    return Misuse::Double(pages * PAGE);
                }
                if into < pages * PAGE {
                    return Misuse::Inside(into, pages * PAGE);
                }
                if p > page + line * LINE {
                    return Misuse::NoBlock;
                }
                // In front of this block, in the page where it begins.
            }
            _ => return Misuse::NoBlock,
        }
        if page <= heap {
            return Misuse::NoBlock;
        }
        page -= PAGE;
    }
}

/// The large block that `p` lies in, which is in this segment: its address and its bytes.
#[cold]
#[inline(never)]
pub(super) fn block_around(segment: &Segment, p: usize) -> Option<(usize, usize)> {
    let mut up_to = p;
    loop {
        let (page, record) = segment.record_up_to(up_to)?;
        let PageRecord::Large { pages, line, .. } = record else {
            return None;
        };
        let at = page + line * LINE;
        if p >= at {
            return (p - at < pages * PAGE).then_some((at, pages * PAGE));
        }
        // In front of this block, in the page where it begins.
        up_to = page.checked_sub(PAGE).filter(|&at| at >= segment.heap())?;
    }
}

/// The run of a block of `pages` pages at `p`: a block that begins inside a page has one page more.
fn run_of(p: usize, pages: usize) -> (usize, usize) {
    let into = p % PAGE;
    (p - into, pages + (into > 0) as usize)
}

/// Removes the block from the page map. Returns the address and pages of its run, which the caller
/// must free. Ends the process if there is none, or if it is in a transfer cache.
pub fn forget(p: usize) -> (usize, usize) {
    remove(p, find(p, Purpose::Free))
}

/// Like [`forget`], also for a block that comes from a transfer cache.
pub fn forget_kept(p: usize) -> (usize, usize) {
    let block = match look(p) {
        Some((segment, pages, arena, _)) => (segment, pages, arena),
        None => misuse(p).die(p),
    };
    remove(p, block)
}

#[inline(always)]
fn remove(p: usize, (segment, pages, arena): (&Segment, usize, u16)) -> (usize, usize) {
    segment.describe(p, 1, Class::NONE, PageRecord::None);
    let (run, len) = run_of(p, pages);
    poison::free(run, len * PAGE);
    count_given(arena, pages, len - pages);
    LARGE.sub(pages);
    (run, len)
}

/// Frees the block; returns its bytes.
pub fn free(p: usize) -> usize {
    let (run, pages) = forget(p);
    if SINGLED_OUT.load(Ordering::Relaxed) {
        free_run(run, pages)
    } else {
        PAGE_HEAPS.free(run, pages)
    }
    (pages - (run < p) as usize) * PAGE
}

/// Frees the run of a block; its memory goes back at once if it is long enough.
#[cold]
#[inline(never)]
fn free_run(run: usize, pages: usize) {
    match PAGE_HEAPS.of(run) {
        Some(heap) if pages * PAGE >= heap.oversize() => heap.free_at_once(run, pages),
        _ => PAGE_HEAPS.free(run, pages),
    }
}

/// Frees many blocks under one lock; they may come from a transfer cache.
#[inline(never)] // Out of the way of slabs' blocks, which are many more.
pub fn free_many(blocks: &[usize]) {
    PAGE_HEAPS.free_many(blocks.iter().map(|&p| forget_kept(p)));
}

/// Changes the block's length without moving it; returns whether it could. The new part of a longer
/// block has the contents that `added` asks for.
pub fn resize_in_place(p: usize, pages: impl Into<Pages>, added: Contents, reach: Reach) -> bool {
    let (old, arena) = pages_of(p);
    let Pages { len: new, .. } = pages.into();
    let (run, len) = run_of(p, old);
    if PAGE_HEAPS.is_standalone(p) {
        if !PAGE_HEAPS.resize_standalone(p, new) {
            return false;
        }
    } else if new > old {
        let Some(zeroed) = PAGE_HEAPS.grow_in_place(run, len, len + new - old, reach) else {
            return false;
        };
        poison::used(p + old * PAGE, (new - old) * PAGE);
        // A block that begins inside a page also ends inside one, and the rest of that page is not
        // zero.
        if added == Contents::Zeros && !(zeroed && run == p) {
            // SAFETY: the added pages belong to the block now.
            unsafe { core::ptr::write_bytes((p + old * PAGE) as *mut u8, 0, (new - old) * PAGE) };
        }
    }
    describe(p, new, arena);
    LARGE.add(new.wrapping_sub(old));
    count_taken(arena, new, 0);
    count_given(arena, old, 0);
    if PAGE_HEAPS.is_standalone(p) {
        poison::used(p, new * PAGE);
    } else if new < old {
        poison::free(run + (len - old + new) * PAGE, (old - new) * PAGE);
        PAGE_HEAPS.free(run + (len - old + new) * PAGE, old - new);
    }
    true
}

/// Moves the block's contents to a new block of this length by remapping, frees the old one and
/// returns the new address. `None` when the block is small enough to copy, when memory is out or
/// when the system cannot remap: the old block is then unchanged.
///
/// The whole chunks of the block move in one call if they are one mapping, else one by one. The
/// rest is copied. `added` says what the added part must contain. `target` names the arena of the
/// new block, from its length and the arena of the old one.
#[inline(always)]
pub fn relocate(
    p: usize,
    pages: impl Into<Pages>,
    added: Contents,
    target: impl Fn(Pages, u16) -> u16,
) -> Option<usize> {
    let pages = pages.into();
    if pages.bytes() <= CHUNK || !p.is_multiple_of(CHUNK) {
        return None;
    }
    relocate_long(p, pages, added, target)
}

// Kept apart: few programs have such blocks.
#[cold]
#[inline(never)]
fn relocate_long(
    p: usize,
    pages: Pages,
    added: Contents,
    target: impl Fn(Pages, u16) -> u16,
) -> Option<usize> {
    let (old, arena) = pages_of(p);
    let bytes = old * PAGE;
    let is_hooked = |p| Segment::find(p).is_some_and(Segment::is_hooked);
    if is_hooked(p) {
        // Memory that hooks provided is theirs to map.
        return None;
    }
    if bytes < CHUNK || pages.len <= old {
        return None;
    }
    let from = arena;
    let arena = target(pages, arena);
    let home = home_of(arena)?;
    if PAGE_HEAPS.is_standalone(p) {
        let to = PAGE_HEAPS.relocate_standalone(p, home.heap(), pages.len)?;
        poison::used(to, pages.bytes());
        count_given(from, old, 0);
        LARGE.sub(old);
        enter(home, to, pages.len, 0, arena, true);
        return Some(to);
    }
    // Whole chunks, because otherwise a mapping would end inside one.
    let wide = round_up(pages.bytes(), CHUNK);
    let run = home.heap().alloc_run(RunRequest::new(wide / PAGE, CHUNK))?;
    poison::used(run.addr, wide);
    if is_hooked(run.addr) {
        PAGE_HEAPS.free(run.addr, wide / PAGE);
        return None;
    }
    let (moved, how) = PAGE_HEAPS.move_block(p, bytes / CHUNK * CHUNK, run.addr, wide);
    if moved == 0 || how == Moved::Lost {
        if how != Moved::Lost {
            poison::free(run.addr, wide);
            PAGE_HEAPS.free(run.addr, wide / PAGE);
            return None;
        }
        if moved > 0 {
            rescue(p, bytes, run.addr, moved);
        }
        // Another part of the program may have mapped what the new block has lost: do not reuse it.
        PAGE_HEAPS.free_rest(run.addr, wide / PAGE);
        return None;
    }
    // SAFETY: both blocks are at least this long and disjoint.
    unsafe { copy_bytes(p + moved, run.addr + moved, bytes - moved) };
    let is_zero = run.zeroed || how != Moved::No;
    if added == Contents::Zeros && !is_zero {
        let more = pages.bytes() - bytes;
        // SAFETY: the new block's part behind the old contents, which nothing uses yet.
        unsafe { core::ptr::write_bytes((run.addr + bytes) as *mut u8, 0, more) };
    }
    enter(home, run.addr, pages.len, 0, arena, is_zero);
    // The mapping of a standalone block may be longer than the block.
    if wide > pages.bytes() && !PAGE_HEAPS.is_standalone(run.addr) {
        let rest = (run.addr + pages.bytes(), (wide - pages.bytes()) / PAGE);
        poison::free(rest.0, rest.1 * PAGE);
        let backing = if is_zero {
            Backing::Clean
        } else {
            Backing::Dirty
        };
        PAGE_HEAPS.free_as(rest.0, rest.1, backing);
    }
    let (p, pages) = forget(p);
    if how != Moved::Torn {
        PAGE_HEAPS.free_as(p, moved / PAGE, Backing::Clean);
    }
    if pages > moved / PAGE {
        PAGE_HEAPS.free(p + moved, pages - moved / PAGE);
    }
    Some(run.addr)
}

/// Copies the first part of a block back after a move failed halfway.
#[cold]
fn rescue(p: usize, bytes: usize, to: usize, moved: usize) {
    debug_assert!(moved < bytes);
    // SAFETY: both blocks are at least this long and disjoint; the old one's addresses are mapped.
    unsafe { copy_bytes(to, p, moved) };
}

unsafe fn copy_bytes(from: usize, to: usize, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) };
}
