//! Where segments are placed.
//!
//! A process cannot ask which of its addresses are empty. The kernel places mappings without a
//! requested address next to its previous ones, downwards from below the stack or, in the legacy
//! layout, upwards from a third of the address space. Either way there are terabytes below the
//! place that it currently uses, far from programs, from `brk` and from the ranges that Go and Java
//! ask for, and within the ranges for which sanitizers have shadow memory. A segment begins there,
//! at a distance that depends on where the system placed the stack, and grows upwards, towards
//! other mappings. Both meet only when everything between them is used.

use super::layout::Layout;
use super::{CHUNK, Growing, Segment};
use crate::space::meta;
use crate::sys::atomic::Ordering;
use crate::sys::mem;
use crate::sys::spread::SPREAD_FACTOR;

/// Places to try before the kernel chooses one.
pub(super) const ATTEMPTS: usize = 4;
/// Bytes of addresses planned for a segment, if there are that many.
pub(super) const PREFERRED_BYTES: usize = 1 << 40;
/// Bytes to reserve if no place is found.
const FALLBACK_BYTES: usize = 64 << 20;

/// Finds a place for a segment of at least `least` bytes: its start, its length, and how much of it
/// is reserved. `reserve` is the number of bytes to reserve, or 0.
pub(super) fn find(reserve: usize, least: usize, attempt: usize) -> Option<(usize, usize, usize)> {
    if reserve == 0 && attempt < ATTEMPTS {
        let top = top(attempt);
        let len = PREFERRED_BYTES.min(top / 4).max(least);
        let turn = Segment::all().len() * ATTEMPTS + attempt;
        let below = top.checked_sub(len.checked_mul(2 * attempt)?)?;
        let at = choose(below, len, turn)?;
        return is_empty(at, len).then_some((at, len, 0));
    }
    if reserve > 0 && attempt > 0 {
        return None;
    }
    let size = if reserve > 0 {
        reserve.max(4 * CHUNK)
    } else {
        FALLBACK_BYTES
    };
    reserved(size, least)
}

/// The place of the first segment, which has [`PREFERRED_BYTES`] bytes.
pub(super) fn first() -> Option<usize> {
    choose(top(0), PREFERRED_BYTES, 0)
}

/// The address below which a place is chosen: where the system maps now or, if that is so low that
/// it must be mapping from the bottom up, as under valgrind, an address far above.
fn top(attempt: usize) -> usize {
    let mapped = meta::place();
    if attempt == 0 && mapped < PREFERRED_BYTES {
        8 * PREFERRED_BYTES
    } else {
        mapped
    }
}

/// A place for `len` bytes that begins in the terabyte which ends `len` and some more before `top`,
/// or in a quarter of what is below `top` if that is less.
fn choose(top: usize, len: usize, turn: usize) -> Option<usize> {
    // SAFETY: getauxval has no preconditions. The result is an address on the stack, which the
    // system randomised.
    let stack = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
    choose_by(stack, top, len, turn)
}

fn choose_by(stack: usize, top: usize, len: usize, turn: usize) -> Option<usize> {
    let span = (top / 4).min(PREFERRED_BYTES) & !(CHUNK - 1);
    let mixed = ((stack >> 4) ^ (turn << 40)).wrapping_mul(SPREAD_FACTOR as usize);
    // The upper bits, as a fraction of the span.
    let at = (((mixed >> 32) * (span / CHUNK)) >> 32) * CHUNK;
    let low = top.checked_sub(len)?.checked_sub(span + span / 16)?;
    Some((low + at) & !(CHUNK - 1)).filter(|&at| at > span / 4)
}

/// Whether no segment is planned there.
fn is_empty(at: usize, len: usize) -> bool {
    let overlaps = |r: &Segment| at < r.end() && r.begin() < at + len;
    !Segment::all().any(overlaps)
}

/// Keeps segments away from `addr`, where hooked memory lies that is found by its addresses:
/// segments that would have come to it end before it.
#[cold]
#[inline(never)]
pub(super) fn keep_off(_: &Growing, addr: usize) {
    for segment in Segment::all().filter(|r| (r.heap()..r.end()).contains(&addr)) {
        let chunks = (addr - segment.heap()) / CHUNK;
        segment.max_chunks.store(chunks, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn reserved(size: usize, least: usize) -> Option<(usize, usize, usize)> {
    // Reserves as much as all earlier segments together, so that the number of segments stays
    // small.
    let before: usize = Segment::all().map(|r| r.chunks() * CHUNK).sum();
    let mut len = size.max(before).max(least);
    loop {
        if let Some(at) = mem::reserve(len) {
            return Some((at, len, len));
        }
        if len == least {
            return None;
        }
        // Under a limit on address space takes at most a quarter of it: the program has other uses
        // for its addresses, and further segments can follow.
        len = (len / 2).min(mem::address_space_limit() / 4).max(least);
    }
}

impl Segment {
    /// The first address of the segment's maps.
    pub(super) fn begin(&self) -> usize {
        let tables = self.tables.load(Ordering::Relaxed);
        tables - Layout::with(self.max_chunks(), mem::os_page()).tables
    }

    /// The address after the last one that the segment may reach.
    fn end(&self) -> usize {
        self.heap() + self.max_chunks() * CHUNK
    }

    /// The address after the last one that the segment has; for a reservation, after its whole
    /// length.
    pub(super) fn known_end(&self) -> usize {
        if self.is_reserved() {
            self.end()
        } else {
            self.heap() + self.chunks() * CHUNK
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_lies_below_what_the_system_maps_and_far_from_programs(
            stack in 0x7f00_0000_0000usize..0x7fff_ffff_f000,
            top in prop_oneof![0x7eff_0000_0000usize..0x7fff_f000_0000, 0x2aaa_aaaa_a000usize..0x2baa_aaaa_a000],
            turn in 0usize..2000,
        ) {
            let at = choose_by(stack, top, PREFERRED_BYTES, turn).expect("there is room");
            prop_assert!(at.is_multiple_of(CHUNK));
            prop_assert!(at + PREFERRED_BYTES + PREFERRED_BYTES / 16 <= top);
            prop_assert!(at + 2 * PREFERRED_BYTES + PREFERRED_BYTES / 8 >= top);
            prop_assert!(!(0x5500_0000_0000..0x5700_0000_0000).contains(&at));
        }

        #[test]
        fn a_small_address_space_is_planned_for_as_well(
            stack: usize,
            top in (1usize << 32)..(1 << 40),
            turn in 0usize..2000,
        ) {
            let len = top / 4;
            let at = choose_by(stack, top, len, turn).expect("there is room");
            prop_assert!(at > top / 16 && at + len <= top);
        }
    }

    #[test]
    fn places_differ_by_where_the_stack_is_and_by_turn() {
        let top = 0x7fff_f000_0000;
        let at = |stack, turn| choose_by(stack, top, PREFERRED_BYTES, turn);
        let by_stack: std::collections::BTreeSet<_> = (0..1000)
            .map(|i| at(0x7ffc_0000_0000 + i * 4096, 0))
            .collect();
        let by_turn: std::collections::BTreeSet<_> =
            (0..1000).map(|i| at(0x7ffc_0000_0000, i)).collect();
        assert!(by_stack.len() > 990 && by_turn.len() > 990);
        assert_eq!(
            choose_by(1 << 40, 0, PREFERRED_BYTES, 0),
            None,
            "there is no room below"
        );
    }
}
