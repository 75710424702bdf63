//! Memory for threads that must not wait: blocks that need no lock.
//!
//! While a fork is under way (`cache::inside`), requests that a thread's cache cannot serve come
//! here. Memory is taken from a chain of pieces, each twice as long as the one before, mapped when
//! first needed and never unmapped. A piece is filled from its start. Its fill and the number of
//! its live blocks share one word, so that its state is consistent at every moment, also in a child
//! that was forked between any two steps. When the last block of a piece is freed, the piece starts
//! over. The length of a block is stored before it. No page map knows of these blocks: `free` looks
//! for them here before it reports a foreign pointer.
//!
//! Some blocks may live on for as long as the process, and a piece with them. So the memory behind
//! its other blocks goes back as they are freed: whole pages of a block at once, and a page that
//! blocks share with the last of them ([`Piece::leave`]).

use crate::class::{Class, SLAB_MAX};
use crate::sys::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::mem;

/// Bytes of the first piece.
const FIRST_PIECE_BYTES: usize = 256 * 1024;
/// Number of pieces; the last one has 32 GiB.
const PIECES: usize = 18;
/// Blocks are placed and counted in units of this many bytes.
const UNIT: usize = 16;
/// Bytes before a block; the last word of them is its length.
const HEADER: usize = UNIT;
/// Bytes for which a piece counts its live blocks, unless the system's pages are longer.
const LEAF_BYTES: usize = 4096;
/// The fill of a piece whose memory is being returned: nothing fits.
const CLOSED: u64 = u32::MAX as u64;

struct Piece {
    base: AtomicUsize,
    /// The fill in units in the upper half, the number of live blocks in the lower half.
    state: AtomicU64,
}

static CHAIN: [Piece; PIECES] = [const {
    Piece {
        base: AtomicUsize::new(0),
        state: AtomicU64::new(0),
    }
}; PIECES];

/// Number of live blocks, and the flag [`OTHERS`].
static STRANGERS: AtomicU32 = AtomicU32::new(0);
/// Set for good when the first arena is created manually (`arena::manual`), so that one load
/// checks for both kinds.
const OTHERS: u32 = 1 << 31;

/// Whether a batch of blocks may hold some that belong in no transfer cache: blocks of this module,
/// or of a manually created arena.
#[inline(always)]
pub fn are_strangers() -> bool {
    STRANGERS.load(Ordering::Relaxed) != 0
}

/// Whether [`expect_others`] was called.
#[inline(always)]
pub fn are_others() -> bool {
    STRANGERS.load(Ordering::Relaxed) & OTHERS != 0
}

pub fn expect_others() {
    STRANGERS.fetch_or(OTHERS, Ordering::Relaxed);
}

/// All pieces with their numbers. `black_box` keeps the compiler from unrolling loops over them.
fn pieces() -> impl Iterator<Item = (usize, &'static Piece)> {
    core::hint::black_box(&CHAIN[..]).iter().enumerate()
}

fn bytes_of(piece: usize) -> usize {
    FIRST_PIECE_BYTES << piece
}

fn split(state: u64) -> (u64, u64) {
    (state >> 32, state & u32::MAX as u64)
}

/// Bytes for which a count is kept: what the system takes back at a time.
fn leaf_bytes() -> usize {
    mem::os_page().max(LEAF_BYTES)
}

/// Bytes of a count.
const COUNT_BYTES: usize = core::mem::size_of::<AtomicU16>();

/// Bytes of the counts of a piece, which lie in front of it.
fn counts_bytes(bytes: usize) -> usize {
    mem::round_up(bytes / leaf_bytes() * COUNT_BYTES, mem::os_page())
}

/// Where a block lies in its piece, its header included.
#[derive(Clone, Copy)]
struct Extent {
    base: usize,
    start: usize,
    end: usize,
}

impl Extent {
    /// The leaves in which it begins and ends.
    fn ends(self) -> [usize; 2] {
        let leaf = |at: usize| (at - self.base) / leaf_bytes();
        [leaf(self.start), leaf(self.end - 1)]
    }

    /// The range of the leaves that no other block has a part of.
    fn own(self) -> (usize, usize) {
        let [first, last] = self.ends().map(|leaf| self.base + leaf * leaf_bytes());
        let from = first + leaf_bytes();
        (from, last.saturating_sub(from))
    }
}

impl Piece {
    fn base(&self, bytes: usize) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire);
        if base != 0 {
            return Some(base);
        }
        let counts = counts_bytes(bytes);
        let new = mem::map_aligned(counts + bytes, mem::os_page())?;
        let put =
            (self.base).compare_exchange(0, new + counts, Ordering::AcqRel, Ordering::Acquire);
        put.map_or_else(
            |other| {
                mem::release(new, counts + bytes);
                Some(other)
            },
            |_| Some(new + counts),
        )
    }

    /// The number of live blocks in a leaf, of those that begin or end there.
    fn count(base: usize, bytes: usize, leaf: usize) -> &'static AtomicU16 {
        let at = base - counts_bytes(bytes) + leaf * COUNT_BYTES;
        // SAFETY: the leaf is one of the piece's, whose counts lie there as long as the process
        // lives. A mapping of zeros is a valid array of counts.
        unsafe { &*(at as *const AtomicU16) }
    }

    fn take(&self, bytes: usize, size: usize, align: usize) -> Option<usize> {
        let base = self.base(bytes)?;
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let (fill, live) = split(state);
            if fill == CLOSED {
                return None;
            }
            let block = (base + fill as usize * UNIT + HEADER).next_multiple_of(align);
            let end = block.checked_add(size)?.next_multiple_of(UNIT);
            if end > base + bytes {
                return None;
            }
            let start = block - HEADER;
            let leaves = Extent { base, start, end }.ends();
            // Before the block is there: nobody may find its leaves without blocks meanwhile.
            for leaf in leaves {
                Self::count(base, bytes, leaf).fetch_add(1, Ordering::Relaxed);
            }
            let new = (((end - base) / UNIT) as u64) << 32 | (live + 1);
            match (self.state).compare_exchange(state, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(block),
                Err(now) => state = now,
            }
            for leaf in leaves {
                Self::count(base, bytes, leaf).fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the memory that only this block has, which is about to be freed. As long as it is
    /// counted, the piece does not start over, so nobody takes memory below its fill.
    fn leave(&self, extent: Extent, bytes: usize) {
        let (from, len) = extent.own();
        if len > 0 {
            mem::discard(from, len);
        }
        // Read first: a block that begins later, beyond this fill, is not counted yet.
        let (fill, _) = split(self.state.load(Ordering::Acquire));
        for leaf in extent.ends() {
            let count = Self::count(extent.base, bytes, leaf);
            let is_last = count.fetch_sub(1, Ordering::AcqRel) == 1;
            let offset = leaf * leaf_bytes();
            if is_last && fill as usize * UNIT >= offset + leaf_bytes() {
                mem::discard(extent.base + offset, leaf_bytes());
            }
        }
    }

    fn give(&self, base: usize) {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let (fill, live) = split(state);
            let used = fill as usize * UNIT;
            let new = match live {
                1 if used > FIRST_PIECE_BYTES => CLOSED << 32,
                1 => 0,
                _ => state - 1,
            };
            match (self.state).compare_exchange(state, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if new == CLOSED << 32 => {
                    mem::discard(base, used.next_multiple_of(mem::os_page()));
                    self.state.store(0, Ordering::Release);
                    return;
                }
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }
}

/// Allocates `size` bytes at a multiple of `align`, a power of two. Returns `None` when memory is
/// exhausted.
#[cold]
#[inline(never)]
pub fn alloc(size: usize, align: usize) -> Option<usize> {
    let (size, align) = (size.max(1), align.max(UNIT));
    // Room for every offset that aligning the block may need.
    let max = size.checked_add(HEADER)?.checked_add(align)?;
    let block = pieces().find_map(|(i, piece)| {
        let bytes = bytes_of(i);
        (bytes >= max).then(|| piece.take(bytes, size, align))?
    })?;
    STRANGERS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the bytes before the block belong to it.
    unsafe { (block as *mut usize).sub(1).write(size) };
    Some(block)
}

/// A block in place of one of this class, at least as aligned as those are: up to [`SLAB_MAX`]
/// bytes, blocks of a power of two of bytes are aligned to their size.
pub fn alloc_of_class(class: Class) -> Option<usize> {
    let size = class.size();
    alloc(
        size,
        (1 << size.trailing_zeros()).min(1 << SLAB_MAX.ilog2()),
    )
}

/// The piece that an address lies in, where it begins, and its bytes.
fn find(p: usize) -> Option<(&'static Piece, usize, usize)> {
    pieces().find_map(|(i, piece)| {
        let (base, bytes) = (piece.base.load(Ordering::Acquire), bytes_of(i));
        (base != 0 && p.wrapping_sub(base) < bytes).then_some((piece, base, bytes))
    })
}

/// The length of the block at `p`, if it belongs to this module.
#[inline(always)]
pub fn size_of(p: usize) -> Option<usize> {
    match STRANGERS.load(Ordering::Relaxed) & !OTHERS {
        0 => None,
        _ => size_of_one(p),
    }
}

#[cold]
#[inline(never)]
fn size_of_one(p: usize) -> Option<usize> {
    find(p)?;
    // SAFETY: as in `alloc`.
    let size = unsafe { (p as *const usize).sub(1).read() };
    (size != 0).then_some(size)
}

/// Frees the block at `p` if it belongs to this module; returns whether it does.
#[cold]
#[inline(never)]
pub fn free(p: usize) -> bool {
    let Some((piece, base, bytes)) = find(p) else {
        return false;
    };
    let Some(size) = size_of(p) else {
        return false;
    };
    // SAFETY: as in `alloc`. The zero makes a second free find no block.
    unsafe { (p as *mut usize).sub(1).write(0) };
    let (start, end) = (p - HEADER, (p + size).next_multiple_of(UNIT));
    piece.leave(Extent { base, start, end }, bytes);
    piece.give(base);
    STRANGERS.fetch_sub(1, Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::page::PAGE;
    use crate::testing::alone;
    use std::vec::Vec;

    #[test]
    fn blocks_are_disjoint_aligned_and_as_long_as_was_asked_for() {
        let _alone = alone();
        let sizes = [8, 16, 48, 4096, 70_000, 5 << 20];
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for round in 0..200 {
            let size = sizes[round % sizes.len()];
            let align = 1 << (round % 14);
            let at = alloc(size, align).expect("there is memory");
            assert!(at.is_multiple_of(align) && size_of(at) == Some(size));
            assert!(blocks.iter().all(|&(b, n)| at + size <= b || b + n <= at));
            // SAFETY: the block belongs to the test.
            unsafe { (at as *mut u8).write_bytes(1, size) };
            blocks.push((at, size));
        }
        assert!(are_strangers());
        for &(at, size) in &blocks {
            assert_eq!(size_of(at), Some(size));
            assert!(free(at));
        }
        assert!(!free(blocks[0].0), "nothing is there any more");
        let live: u64 = CHAIN
            .iter()
            .map(|p| split(p.state.load(Ordering::Relaxed)).1)
            .sum();
        assert_eq!(live, 0);
        assert_eq!(alloc(1 << 36, 16), None, "more than the longest piece");
    }

    #[test]
    fn a_block_in_place_of_a_class_s_is_as_aligned_as_those() {
        let _alone = alone();
        for size in 1..=SLAB_MAX {
            let class = Class::of(size);
            let align = match class.size() {
                size if size.is_power_of_two() => size,
                size => (1 << size.trailing_zeros()).min(PAGE),
            };
            let block = alloc_of_class(class).expect("there is memory");
            assert!(block.is_multiple_of(align), "{}", class.size());
            assert!(free(block));
        }
    }

    #[test]
    fn threads_share_the_pieces_without_losing_a_block() {
        let _alone = alone();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..2000usize {
                        let size = 16 + round % 900;
                        let at = alloc(size, 16).expect("there is memory");
                        // SAFETY: the block belongs to this thread.
                        unsafe {
                            (at as *mut u8).write_bytes(thread, size);
                            std::thread::yield_now();
                            let bytes = core::slice::from_raw_parts(at as *const u8, size);
                            assert!(bytes.iter().all(|&b| b == thread));
                        }
                        assert!(free(at));
                    }
                });
            }
        });
        let live: u64 = CHAIN
            .iter()
            .map(|p| split(p.state.load(Ordering::Relaxed)).1)
            .sum();
        assert_eq!(live, 0);
    }

    /// Threads that free each other's blocks, in pages that they share.
    #[test]
    fn what_is_live_keeps_its_bytes_while_memory_around_it_goes_back() {
        let _alone = alone();
        const THREADS: usize = 4;
        let exchange: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
        let check_and_free = |at: usize| {
            let size = size_of(at).expect("a block");
            // SAFETY: the block was taken out of the exchange, or is left there at the end.
            let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, size) };
            assert!(
                bytes.iter().all(|&b| b == size as u8 | 1),
                "{at:#x}: {size}"
            );
            assert!(free(at));
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (exchange, check_and_free) = (&exchange, &check_and_free);
                scope.spawn(move || {
                    for round in 0..4000usize {
                        let size = 1 + (round * 37 + thread * 911) % 9000;
                        let at = alloc(size, 16).expect("there is memory");
                        // SAFETY: the block belongs to this thread.
                        unsafe { (at as *mut u8).write_bytes(size as u8 | 1, size) };
                        let place = &exchange[(round * 7 + thread * 13) % 64];
                        match place.swap(at, Ordering::AcqRel) {
                            0 => {}
                            other => check_and_free(other),
                        }
                    }
                });
            }
        });
        for place in &exchange {
            match place.load(Ordering::Acquire) {
                0 => {}
                at => check_and_free(at),
            }
        }
    }

    #[test]
    fn a_block_that_stays_keeps_the_memory_of_its_pages_alone() {
        let _alone = alone();
        // Too large for the first piece, whose memory is too little to be given back.
        let stays = alloc(300 << 10, 16).expect("there is memory");
        for size in [100, 3000, 10_000, 100_000] {
            let blocks: Vec<usize> = (0..4_000_000 / size)
                .map(|_| {
                    let at = alloc(size, 16).expect("there is memory");
                    // SAFETY: the block belongs to the test.
                    unsafe { (at as *mut u8).write_bytes(1, size) };
                    at
                })
                .collect();
            let last = alloc(100, 16).expect("there is memory");
            for &at in &blocks {
                assert!(free(at));
            }
            for pages in blocks.chunks(blocks.len() / 4) {
                let (Some(&first), Some(&end)) = (pages.first(), pages.last()) else {
                    continue;
                };
                let from = first.next_multiple_of(leaf_bytes());
                let len = (end - end % leaf_bytes()).saturating_sub(from);
                let piece = |p: usize| find(p).map(|(_, base, _)| base);
                if len > 0 && piece(first) == piece(end) && bytes_of(0) < len {
                    let len = len.min(512 * mem::os_page());
                    // At most the last page, which may have been beyond the fill.
                    assert!(mem::tests::resident(from, len) <= 1, "{size}");
                }
            }
            assert!(free(last));
        }
        assert!(free(stays));
    }
}
