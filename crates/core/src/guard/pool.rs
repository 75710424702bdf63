//! The pool: a range of slots with closed pages between them.
//!
//! ```text
//!  closed │ slot 0: up to 8 pages │ closed │ slot 1 │ closed │ …
//! ```
//!
//! All of it is without access and without memory at first. A block opens the pages that it needs,
//! at the beginning of its slot or at the end, and lies against the closed page there. What is left
//! of its pages is filled with a pattern, which is checked when the block is freed. Then the pages
//! are closed again, and their memory goes back. Freed slots wait in a queue until all others were
//! used.

use super::slots::{FRAMES_MAX, Slot, State};
use crate::cache::inside;
use crate::prof::capture::Stack;
use crate::prof::unwind::Registers;
use crate::report;
use crate::space::meta;
use crate::sys::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sys::hint;
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::mem::{self, os_page, round_up};
use crate::sys::rank::Rank;

/// The most slots that there may be: an open one takes two of the mappings that a process may have.
const SLOTS_MAX: u32 = 16 << 10;
/// The most bytes of a slot.
const SLOT_BYTES_MAX: usize = 32 << 10;
/// The most bytes of all pages that are open, for each slot on the mean.
const OPEN_BYTES_A_SLOT: usize = 3 << 10;

/// Where the pool begins; 0 before it exists.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Its bytes; 0 before it exists.
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// The slots, and their records.
static SLOTS: AtomicUsize = AtomicUsize::new(0);
static RECORDS: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Slots whose block was freed while a fork was under way.
static PUT_BY: AtomicU32 = AtomicU32::new(0);

/// Which slots can be used next.
struct Queue {
    /// The slot that was freed first, and the one that was freed last, plus one; 0 for none.
    first: u32,
    last: u32,
    /// Slots that were used at some time.
    used: usize,
    open_pages: usize,
}

static QUEUE: Mutex<Queue> = Mutex::named(
    Rank::Guards,
    Queue {
        first: 0,
        last: 0,
        used: 0,
        open_pages: 0,
    },
);

/// The lock, for forks.
pub fn lock() -> &'static RawLock {
    QUEUE.raw()
}

fn slots() -> usize {
    SLOTS.load(Ordering::Acquire)
}

/// The pages of a slot.
fn slot_pages() -> usize {
    (SLOT_BYTES_MAX / os_page()).max(1)
}

/// The bytes from one slot to the next.
#[inline(never)]
fn stride() -> usize {
    (slot_pages() + 1) * os_page()
}

/// Makes the pool with so many slots, if there is none; false when memory is out. For a thread that
/// is inside.
pub fn begin(slots: u32) -> bool {
    let _making = QUEUE.lock_seldom();
    if BASE.load(Ordering::Acquire) != 0 {
        return true;
    }
    let slots = slots.min(SLOTS_MAX) as usize;
    let Some(records) = meta::take_apart(slots * size_of::<Slot>()) else {
        return false;
    };
    let bytes = slots * stride() + os_page();
    let Some(base) = mem::reserve(bytes) else {
        return false;
    };
    RECORDS.store(records.as_ptr().cast(), Ordering::Release);
    SLOTS.store(slots, Ordering::Release);
    BASE.store(base, Ordering::Release);
    BYTES.store(bytes, Ordering::Release);
    true
}

/// A slot, and where its pages begin.
#[derive(Clone, Copy)]
pub struct SlotPlace {
    pub slot: &'static Slot,
    number: usize,
    pub start: usize,
}

impl SlotPlace {
    fn of(number: usize) -> Option<SlotPlace> {
        if number >= slots() {
            return None;
        }
        let records = RECORDS.load(Ordering::Acquire);
        // SAFETY: there are so many records, which are never unmapped. All of their fields are
        // atomic, and zeros are valid.
        let slot = unsafe { &*records.add(number) };
        let start = BASE.load(Ordering::Acquire) + number * stride() + os_page();
        Some(SlotPlace {
            slot,
            number,
            start,
        })
    }

    /// The end of the slot's pages.
    pub fn end(&self) -> usize {
        self.start + slot_pages() * os_page()
    }

    /// The pages that are open for its block: their start and their end.
    #[inline(never)]
    pub fn open(&self) -> (usize, usize) {
        let bytes = self.slot.pages.load(Ordering::Relaxed) * os_page();
        let (block, _) = self.slot.block();
        if block == self.start && bytes > 0 {
            (self.start, self.start + bytes)
        } else {
            (self.end() - bytes, self.end())
        }
    }

    /// Whether all accesses to the slot and to the closed pages around it succeed.
    pub fn is_open_for_good(&self) -> bool {
        self.slot.state() == State::Opened
    }

    /// Lets them succeed, for good.
    pub fn open_for_good(&self) {
        loop {
            let state = self.slot.state();
            if state == State::Opened || self.slot.change(state, State::Opened).is_ok() {
                break;
            }
        }
        let page = os_page();
        mem::commit(self.start - page, stride() + page);
    }
}

/// Whether an address lies in the pool.
#[inline(always)]
pub fn contains(at: usize) -> bool {
    let bytes = BYTES.load(Ordering::Acquire);
    at.wrapping_sub(BASE.load(Ordering::Relaxed)) < bytes
}

/// The slot that an address lies in or, in a closed page between two, those before and behind it.
#[inline(never)]
pub fn near(at: usize) -> [Option<SlotPlace>; 2] {
    if !contains(at) {
        return [None; 2];
    }
    let offset = at - BASE.load(Ordering::Acquire);
    // Checked, so that no message about a division by zero is linked in.
    let stride = stride();
    let (Some(number), Some(rest)) = (offset.checked_div(stride), offset.checked_rem(stride))
    else {
        return [None; 2];
    };
    if rest >= os_page() {
        [SlotPlace::of(number), None]
    } else {
        [
            number.checked_sub(1).and_then(SlotPlace::of),
            SlotPlace::of(number),
        ]
    }
}

/// The slot of the block that begins at an address, whatever its state.
pub fn slot_of(at: usize) -> Option<SlotPlace> {
    let is_of = |place: &SlotPlace| place.slot.block().0 == at;
    let [one, other] = near(at);
    other.filter(is_of).or(one)
}

/// Bytes that are filled and compared at once.
const WORD: usize = size_of::<u64>();

/// The pattern, eight bytes that differ, at a multiple of 8.
const PATTERN: u64 = 0xa2a3_a0a1_a6a7_a4a5;

/// The byte of the pattern at an address.
fn pattern(at: usize) -> u8 {
    0xa5 ^ (at % WORD) as u8
}

/// Where a block lies in its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Side {
    Left = 1,
    Right,
    /// At the end, and nothing is left behind it, unless an alignment was asked for.
    Tight,
}

/// Alignments up to this one come with any request.
const ALIGN_DEFAULT: usize = 16;

/// Opens a slot for a block of this size at a multiple of `align`, on this side of the slot, for
/// the frame with these registers. `None` if it cannot have one.
pub fn take(size: usize, mut align: usize, side: Side, from: &Registers) -> Option<usize> {
    let page = os_page();
    if side == Side::Tight && align <= ALIGN_DEFAULT {
        align = align.min(1 << size.trailing_zeros().min(4));
    }
    let bytes = round_up(size, align);
    if align > page || bytes > slot_pages() * page {
        return None;
    }
    let inside = inside::enter()?;
    let pages = bytes.div_ceil(page);
    let place = next(pages)?;
    let (block, open) = match (bytes, side) {
        // A block of no bytes lies in closed pages.
        (0, _) => (place.end() - round_up(align, 16), place.end()),
        (_, Side::Left) => (place.start, place.start),
        _ => (place.end() - bytes, place.end() - pages * page),
    };
    if pages > 0 && !mem::commit(open, pages * page) {
        append(&place, pages);
        return None;
    }
    if pages > 0 {
        fill(open, block);
        fill(block + size, open + pages * page);
    }
    if let Some(stack) = Stack::take(from, FRAMES_MAX) {
        place.slot.allocated.set(report::thread(), stack.frames());
    }
    place.slot.publish(block, size, pages);
    drop(inside);
    Some(block)
}

/// Whether a whole word of a range that ends at `to` begins at `at`.
fn is_word(at: usize, to: usize) -> bool {
    at.is_multiple_of(WORD) && to - at >= WORD
}

/// Fills pages with the pattern.
#[inline(never)]
fn fill(from: usize, to: usize) {
    let mut at = from;
    while at < to {
        hint::step_by_step();
        // SAFETY: the pages are open, and no block is there.
        unsafe {
            if is_word(at, to) {
                (at as *mut u64).write(PATTERN);
                at += WORD;
            } else {
                (at as *mut u8).write(pattern(at));
                at += 1;
            }
        }
    }
}

/// Whether the byte at an address is not as it was filled.
///
/// # Safety
/// Its page is open until the calling thread, which frees the block, closes it.
unsafe fn differs(at: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (at as *const u8).read() != pattern(at) }
}

/// The first byte of a range that is not as it was filled.
///
/// # Safety
/// As for [`differs`], for all of them.
#[inline(never)]
unsafe fn first_that_differs(from: usize, to: usize) -> Option<usize> {
    let mut at = from;
    while at < to {
        hint::step_by_step();
        // SAFETY: the caller's promise.
        unsafe {
            if is_word(at, to) && (at as *const u64).read() == PATTERN {
                at += WORD;
            } else if differs(at) {
                return Some(at);
            } else {
                at += 1;
            }
        }
    }
    None
}

/// The byte nearest to a block that is not as it was filled, one behind it before one in front.
#[inline(never)]
pub fn damage(place: &SlotPlace) -> Option<usize> {
    let ((open, end), (block, size)) = (place.open(), place.slot.block());
    if open == end {
        return None;
    }
    // SAFETY: the pages are open until the calling thread, which frees the block, closes them.
    unsafe {
        first_that_differs(block + size, end).or_else(|| {
            let first = first_that_differs(open, block)?;
            (first..block).rev().find(|&at| differs(at))
        })
    }
}

/// How many bytes on one side of a block are not as they were filled.
pub fn damaged_bytes(place: &SlotPlace, is_before: bool) -> usize {
    let ((open, end), (block, size)) = (place.open(), place.slot.block());
    let side = if is_before {
        open..block
    } else {
        block + size..end
    };
    // SAFETY: as in `damage`.
    side.filter(|&at| unsafe { differs(at) }).count()
}

/// The slot that is next, if this many pages may be opened. The calling thread has it to itself.
#[inline(never)]
fn next(pages: usize) -> Option<SlotPlace> {
    if PUT_BY.load(Ordering::Relaxed) > 0 {
        close_all_put_by();
    }
    let mut queue = QUEUE.lock_seldom();
    if (queue.open_pages + pages) * os_page() > slots() * OPEN_BYTES_A_SLOT {
        return None;
    }
    let place = loop {
        if queue.used < slots() {
            queue.used += 1;
            break SlotPlace::of(queue.used - 1)?;
        }
        let place = SlotPlace::of((queue.first as usize).checked_sub(1)?)?;
        queue.first = place.slot.next.load(Ordering::Relaxed);
        if queue.first == 0 {
            queue.last = 0;
        }
        if place.slot.change(State::Closed, State::Fresh).is_ok() {
            break place;
        }
    };
    queue.open_pages += pages;
    Some(place)
}

/// Puts a closed slot of this many pages at the end of the queue.
#[inline(never)]
fn append(place: &SlotPlace, pages: usize) {
    let _ = place.slot.change(State::Fresh, State::Closed);
    let mut queue = QUEUE.lock_seldom();
    let number = place.number as u32 + 1;
    place.slot.next.store(0, Ordering::Relaxed);
    match SlotPlace::of((queue.last as usize).wrapping_sub(1)) {
        Some(last) => last.slot.next.store(number, Ordering::Relaxed),
        None => queue.first = number,
    }
    queue.last = number;
    queue.open_pages -= pages;
}

/// Closes the pages of a block that the calling thread has begun to free, or puts that off while a
/// fork is under way. The stack is that of the free.
pub fn give(place: &SlotPlace, from: &Registers) {
    let Some(_inside) = inside::enter() else {
        place.slot.freed.set(report::thread(), &[]);
        PUT_BY.fetch_add(1, Ordering::Relaxed);
        let _ = place.slot.change(State::Leaving, State::PutBy);
        return;
    };
    match Stack::take(from, FRAMES_MAX) {
        Some(stack) => place.slot.freed.set(report::thread(), stack.frames()),
        None => place.slot.freed.set(report::thread(), &[]),
    }
    close(place);
}

/// Closes the pages of a slot that is being left.
fn close(place: &SlotPlace) {
    let (open, end) = place.open();
    let closed = open == end
        || mem::decommit(open, end - open)
        || mem::forbid(open, end - open) && mem::discard(open, end - open);
    if closed && place.slot.change(State::Leaving, State::Closed).is_ok() {
        append(place, (end - open) / os_page());
    }
}

#[cold]
#[inline(never)]
fn close_all_put_by() {
    for place in (0..slots()).filter_map(SlotPlace::of) {
        if place.slot.change(State::PutBy, State::Leaving).is_ok() {
            PUT_BY.fetch_sub(1, Ordering::Relaxed);
            close(&place);
        }
    }
}

/// How many blocks are in use.
pub fn live() -> usize {
    let places = (0..slots()).filter_map(SlotPlace::of);
    places
        .filter(|place| place.slot.state() == State::Live)
        .count()
}

/// Bytes of the pages that are open.
pub fn open_bytes() -> usize {
    QUEUE.lock_seldom().open_pages * os_page()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::life;
    use std::vec::Vec;

    /// Slots of the pool of a test.
    const SLOTS: usize = 8;

    fn begun() {
        assert!(life::initialise(|| ()));
        assert!(report::begin() && begin(SLOTS as u32));
        assert!(begin(100), "there is one already");
    }

    fn taken(size: usize, side: Side) -> Option<(usize, SlotPlace)> {
        let block = take(size, 16, side, &Registers::here())?;
        Some((block, slot_of(block).unwrap()))
    }

    fn freed(place: &SlotPlace) {
        place.slot.change(State::Live, State::Leaving).unwrap();
        give(place, &Registers::here());
    }

    #[test]
    fn blocks_lie_against_the_closed_page_on_their_side() {
        crate::testing::own_process!();
        begun();
        for (size, side) in [
            (40, Side::Right),
            (40, Side::Left),
            (37, Side::Tight),
            (5000, Side::Right),
        ] {
            let (block, place) = taken(size, side).unwrap();
            let (open, end) = place.open();
            assert_eq!(place.slot.block(), (block, size));
            match side {
                Side::Left => assert_eq!(block, open),
                Side::Right => assert_eq!(block, end - round_up(size, 16)),
                Side::Tight => assert_eq!(block + size, end),
            }
            assert_eq!(end - open, round_up(size, os_page()));
            assert!(contains(block) && contains(end) && contains(open - 1));
            // What lies between two slots is near both.
            let [before, behind] = near(end).map(|place| place.map(|place| place.number));
            assert_eq!(before, Some(place.number));
            assert!(behind.is_none_or(|next| next == place.number + 1));
        }
        assert_eq!((live(), contains(8)), (4, false));
    }

    #[test]
    fn freed_slots_wait_until_all_others_were_used() {
        crate::testing::own_process!();
        begun();
        let numbers: Vec<usize> = (0..3 * SLOTS)
            .map(|_| {
                let (_, place) = taken(100, Side::Left).unwrap();
                freed(&place);
                assert_eq!(place.slot.state(), State::Closed);
                place.number
            })
            .collect();
        let expected: Vec<usize> = (0..3 * SLOTS).map(|i| i % SLOTS).collect();
        assert_eq!(numbers, expected);
        assert_eq!((live(), open_bytes()), (0, 0));
    }

    #[test]
    fn what_was_written_beside_a_block_is_counted() {
        crate::testing::own_process!();
        begun();
        let (block, place) = taken(40, Side::Right).unwrap();
        assert_eq!(damage(&place), None);
        let write = |at: usize| {
            // SAFETY: within the open page.
            unsafe { *core::ptr::with_exposed_provenance_mut::<u8>(at) ^= 1 };
        };
        write(block + 41);
        write(block + 43);
        assert_eq!(damage(&place), Some(block + 41));
        assert_eq!(damaged_bytes(&place, false), 2);
        write(block - 7);
        assert_eq!(damaged_bytes(&place, true), 1);
        // What is nearest in front, if nothing behind is.
        write(block + 41);
        write(block + 43);
        write(block - 70);
        assert_eq!(damage(&place), Some(block - 7));
        let bytes = core::array::from_fn(pattern);
        assert_eq!(PATTERN, u64::from_le_bytes(bytes));
    }

    #[test]
    fn the_pages_that_are_open_are_bounded() {
        crate::testing::own_process!();
        begun();
        let most = SLOTS * OPEN_BYTES_A_SLOT / os_page() * os_page();
        assert!(taken(most + 1, Side::Left).is_none());
        assert!(taken(SLOT_BYTES_MAX + 1, Side::Left).is_none());
        assert!(taken(0, Side::Left).is_some(), "that needs no page");
        assert!(taken(most, Side::Left).is_some());
        assert!(taken(1, Side::Left).is_none());
        assert_eq!(open_bytes(), most);
    }
}
