//! Blocks of 0 bytes: places in pages that nothing may access.
//!
//! A program may only compare the address of such a block and free it. A read or a write ends it,
//! where a block of another size would hide the mistake. Each block is [`PLACE`] bytes of addresses
//! and a bit, which is set while the block is in use. The bits of a piece lie in front of its
//! places. Pieces are mapped when needed, each with twice the places of the one before.
//!
//! There is no lock: a bit is set or cleared in one step, so that the state is whole at every
//! moment, also in a child that was forked between any two steps. Freed places are used again last,
//! which leaves time to detect a second free.

use crate::sys::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, settle};
use crate::sys::mem;

/// Bytes of addresses of a block: as aligned as any block.
const PLACE: usize = 16;
/// Places of the first piece: 64 KiB of addresses.
const FIRST_PLACES: usize = 4096;
/// The last piece has 2 GiB of addresses.
const PIECES: usize = 16;

struct Piece {
    /// Where its bits begin; 0 before it is mapped.
    bits: AtomicUsize,
    live: AtomicUsize,
    /// The place where the next search begins.
    next: AtomicUsize,
}

static CHAIN: [Piece; PIECES] = [const {
    Piece {
        bits: AtomicUsize::new(0),
        live: AtomicUsize::new(0),
        next: AtomicUsize::new(0),
    }
}; PIECES];

/// Option: blocks of 0 bytes are ordinary ones.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Sets whether blocks of 0 bytes cannot be accessed.
pub fn configure(closed: bool) {
    settle!(IS_OFF, !closed);
}

/// What became of a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    Yes,
    /// The block is free already.
    Twice,
    /// The address is this many bytes into a place.
    Inside(usize),
}

/// All pieces with their numbers of places. `black_box` keeps the compiler from unrolling loops.
fn pieces() -> impl Iterator<Item = (&'static Piece, usize)> {
    let all = core::hint::black_box(&CHAIN[..]).iter();
    all.enumerate().map(|(i, piece)| (piece, FIRST_PLACES << i))
}

/// Bytes of the pages with the bits of this many places.
fn bytes_of_bits(places: usize) -> usize {
    mem::round_up(places / 8, mem::os_page())
}

impl Piece {
    /// Where the bits are; maps the piece if it is not.
    #[inline(never)]
    fn bits(&self, places: usize) -> Option<usize> {
        let bits = self.bits.load(Ordering::Acquire);
        if bits != 0 {
            return Some(bits);
        }
        let len = bytes_of_bits(places) + places * PLACE;
        let new = mem::reserve(len)?;
        if !mem::commit(new, bytes_of_bits(places)) {
            mem::release(new, len);
            return None;
        }
        let put = (self.bits).compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire);
        put.map_or_else(
            |other| {
                mem::release(new, len);
                Some(other)
            },
            |_| Some(new),
        )
    }

    /// Takes the number of a place that is free.
    fn take(&self, bits: usize, places: usize) -> Option<usize> {
        let first = self.next.load(Ordering::Relaxed) % places;
        // The first word once more at the end, for the bits below the first.
        for i in 0..=places / 64 {
            let at = (first / 64 + i) % (places / 64);
            let tried = if i == 0 {
                u64::MAX << (first % 64)
            } else {
                u64::MAX
            };
            let word = word(bits, at);
            let mut free = !word.load(Ordering::Relaxed) & tried;
            while free != 0 {
                let bit = free & free.wrapping_neg();
                if word.fetch_or(bit, Ordering::Acquire) & bit == 0 {
                    let place = at * 64 + bit.trailing_zeros() as usize;
                    self.next.store(place + 1, Ordering::Relaxed);
                    self.live.fetch_add(1, Ordering::Relaxed);
                    return Some(place);
                }
                free &= free - 1;
            }
        }
        None
    }
}

/// A word of the bits that begin at this address.
fn word(bits: usize, i: usize) -> &'static AtomicU64 {
    // SAFETY: the callers' words are those of a piece's places, whose bits are mapped for good and
    // only accessed as atomics.
    unsafe { &*(bits as *const AtomicU64).add(i) }
}

/// Returns a block of 0 bytes; `None` if those are ordinary ones, or if there are no addresses.
#[cold]
#[inline(never)]
pub fn alloc() -> Option<usize> {
    if IS_OFF.load(Ordering::Relaxed) {
        return None;
    }
    pieces().find_map(|(piece, places)| {
        if piece.live.load(Ordering::Relaxed) >= places {
            return None;
        }
        let bits = piece.bits(places)?;
        let place = piece.take(bits, places)?;
        Some(bits + bytes_of_bits(places) + place * PLACE)
    })
}

/// The piece that `p` lies in, where its bits are, and the distance of `p` from its first place.
#[inline(never)]
fn find(p: usize) -> Option<(&'static Piece, usize, usize)> {
    pieces().find_map(|(piece, places)| {
        let bits = piece.bits.load(Ordering::Acquire);
        let offset = p.wrapping_sub(bits + bytes_of_bits(places));
        (bits != 0 && offset < places * PLACE).then_some((piece, bits, offset))
    })
}

/// Whether `p` lies where such blocks do.
#[cold]
#[inline(never)]
pub fn has(p: usize) -> bool {
    find(p).is_some()
}

/// Frees the block at `p`; `None` if it does not lie where such blocks do.
#[cold]
#[inline(never)]
pub fn free(p: usize) -> Option<Freed> {
    let (piece, bits, offset) = find(p)?;
    let (place, into) = (offset / PLACE, offset % PLACE);
    if into != 0 {
        return Some(Freed::Inside(into));
    }
    let bit = 1 << (place % 64);
    if word(bits, place / 64).fetch_and(!bit, Ordering::Release) & bit == 0 {
        return Some(Freed::Twice);
    }
    piece.live.fetch_sub(1, Ordering::Relaxed);
    Some(Freed::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn places_are_distinct_and_each_is_freed_once() {
        crate::testing::own_process!();
        let count = 3 * FIRST_PLACES;
        let mut all: Vec<usize> = (0..count).map(|_| alloc().expect("addresses")).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|&p| p % PLACE == 0 && has(p)));
        assert_eq!(free(all[5] + 3), Some(Freed::Inside(3)));
        assert!(all.iter().all(|&p| free(p) == Some(Freed::Yes)));
        assert!(all.iter().all(|&p| free(p) == Some(Freed::Twice)));
        assert_eq!((free(count), has(count)), (None, false));
        let again = alloc().expect("there is room");
        assert_ne!(alloc(), Some(again), "what was just freed comes last");
        configure(false);
        assert_eq!((alloc(), free(again)), (None, Some(Freed::Yes)));
    }
}
