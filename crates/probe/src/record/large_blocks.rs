//! Large blocks: where they have begun, and the share of their pages that was touched.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::allocator::loader::{Pointer, hash_of};
use crate::arch;

/// Blocks from this size on are looked at when they end: the share of their pages that was touched.
pub const LARGE_BLOCK_BYTES: usize = 64 << 10;

/// Where large blocks have begun, so that the end of a small one need not ask the allocator for its
/// size: a bit for each of some hashes of addresses. A bit stays set. If the addresses of two
/// blocks share a bit, the allocator is asked without need.
static LARGE_BEGUN: [AtomicU64; LARGE_BITS / 64] = [const { AtomicU64::new(0) }; LARGE_BITS / 64];
const LARGE_BITS: usize = 4096;

/// The word and the bit of an address.
#[inline(always)]
fn large_bit(block: Pointer) -> (&'static AtomicU64, u64) {
    let hash = hash_of(block);
    let index = (hash >> (64 - LARGE_BITS.trailing_zeros())) as usize;
    (&LARGE_BEGUN[index / 64], 1 << (index % 64))
}

/// Whether a large block has begun at this address, or at one with the same hash.
#[inline(always)]
pub fn may_be_large(block: Pointer) -> bool {
    let (word, bit) = large_bit(block);
    word.load(Ordering::Relaxed) & bit != 0
}

/// A block begins. An allocator may make twice of what was asked for.
#[inline(always)]
pub fn note_begin(block: Pointer, size: usize) {
    if size >= LARGE_BLOCK_BYTES / 2 {
        note_large(block);
    }
}

#[cold]
#[inline(never)]
fn note_large(block: Pointer) {
    let (word, bit) = large_bit(block);
    if word.load(Ordering::Relaxed) & bit == 0 {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The share of a block's pages that lie in memory, in 255ths. Of a block of many pages, parts are
/// looked at, evenly distributed.
pub fn touched(block: Pointer, usable: usize) -> Option<usize> {
    /// Pages of one call, and calls for one block.
    const CALL_PAGES: usize = 512;
    const CALLS_MAX: usize = 32;
    let page = arch::page_bytes();
    let begin = block.addr().next_multiple_of(page);
    let end = (block.addr() + usable) & !(page - 1);
    let pages = end.checked_sub(begin)? / page;
    let (parts, part) = match pages.div_ceil(CALL_PAGES) {
        calls if calls <= CALLS_MAX => (calls, CALL_PAGES),
        _ => (CALLS_MAX, pages / CALLS_MAX),
    };
    let (mut seen, mut there) = (0, 0);
    let mut states = [0_u8; CALL_PAGES];
    for index in 0..parts {
        let from = index * part;
        let count = CALL_PAGES.min(pages - from);
        let at = block.with_addr(begin + from * page);
        // SAFETY: asks for the state of pages of a block that is live; the buffer has room.
        if unsafe { libc::mincore(at.cast(), count * page, states.as_mut_ptr()) } != 0 {
            return None;
        }
        seen += count;
        there += states[..count]
            .iter()
            .filter(|state| **state & 1 != 0)
            .count();
    }
    (seen > 0).then(|| (there * 255).div_ceil(seen))
}
