//! What is counted of each call.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::allocator::loader::{Pointer, hash_of};
use crate::clock::now;
use crate::segment::{self, join, trim};
use crate::tls::{Thread, thread};
use crate::{allocator, record, state};
use mallard_formats::event::Kind;
use mallard_formats::probe::layout::{
    BLOCKS_PER_FOLLOWED, GROUP_ENTRIES, GROUPS, LIVE_STEP_BYTES, MATRIX_THREADS, Slot, State,
    class_of,
};

/// A call that is being counted.
pub struct Call {
    thread: &'static Thread,
    slot: &'static Slot,
    shared: bool,
    state: State,
    /// The logarithm of the alignment that is asked for; 0 for none.
    align: u32,
    /// How the call is recorded. A call that is recorded is not counted: the lab counts records.
    mode: record::Mode,
}

/// Begins a call. None if it is not to be counted: it comes from inside another one, or so early
/// that nothing can be counted.
#[inline(always)]
pub fn enter(state: State) -> Option<Call> {
    enter_in(thread(), state)
}

/// The same in the calling thread, whose variables are known.
#[inline(always)]
pub fn enter_in(thread: &'static Thread, state: State) -> Option<Call> {
    if !state::is_ready() || thread.slot.get().is_null() {
        if !join::join(thread) {
            return None;
        }
    } else if thread.busy.get() != 0 {
        return None;
    }
    // SAFETY: not null, and of this process's segment, or else the thread would have joined anew.
    let slot = unsafe { &*thread.slot.get() };
    thread.busy.set(1);
    let mode = record::mode();
    let mut call = Call {
        thread,
        slot,
        shared: false,
        state,
        align: 0,
        mode,
    };
    if !mode.is_on() {
        call.note_entry();
    }
    Some(call)
}

impl Call {
    /// Writes what the thread does into its cell, and counts the call.
    #[inline(always)]
    fn note_entry(&mut self) {
        let cell = &self.slot.cell;
        self.shared = core::ptr::eq(self.slot, segment::slot(0));
        if !self.shared {
            let word = cell.word.load(Ordering::Relaxed);
            let inside = (word & !0xff).wrapping_add(1 << 8) | self.state as u64;
            cell.word.store(inside, Ordering::Relaxed);
        }
        self.add(&cell.calls[self.state as usize - 1], 1);
    }

    #[inline(always)]
    fn add(&self, counter: &AtomicU64, by: u64) {
        if self.shared {
            counter.fetch_add(by, Ordering::Relaxed);
        } else {
            let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
            counter.store(sum, Ordering::Relaxed);
        }
    }

    /// Ends the call.
    #[inline(always)]
    pub fn leave(self) {
        if !self.mode.is_on() && !self.shared {
            let word = self.slot.cell.word.load(Ordering::Relaxed);
            self.slot
                .cell
                .word
                .store((word & !0xff).wrapping_add(1 << 8), Ordering::Relaxed);
        }
        self.thread.busy.set(0);
    }

    /// A request of `size` bytes was answered with `block`, of this usable size.
    #[inline(always)]
    fn requested(&self, block: Pointer, size: usize, usable: usize) {
        if block.is_null() {
            self.add(&self.slot.cell.failed, 1);
            return;
        }
        let size = size as u64;
        self.add(&self.slot.cell.requested, size);
        self.add(&self.slot.sizes[class_of(size)], 1);
        self.add(&self.slot.cell.begun, usable as u64);
        self.pass_on();
    }

    /// Passes the thread's live bytes on, once they have changed by enough.
    #[inline(always)]
    fn pass_on(&self) {
        let cell = &self.slot.cell;
        let begun = cell.begun.load(Ordering::Relaxed);
        let live = begun.wrapping_sub(cell.ended.load(Ordering::Relaxed)) as i64;
        let change = live.wrapping_sub(cell.passed_on.load(Ordering::Relaxed) as i64);
        if change.wrapping_abs() >= LIVE_STEP_BYTES && !self.shared {
            self.add_to_live(live, change);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_to_live(&self, live: i64, change: i64) {
        self.slot
            .cell
            .passed_on
            .store(live as u64, Ordering::Relaxed);
        let header = segment::header();
        let all = header.live.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 {
            header.peak.fetch_max(all, Ordering::Relaxed);
        }
    }

    /// The request asks for an alignment.
    #[inline(always)]
    pub fn aligned(mut self, align: usize) -> Call {
        self.align = align.max(1).ilog2();
        self
    }

    /// The life of a block begins.
    #[inline(always)]
    pub fn begin(&self, block: Pointer, size: usize) {
        if self.mode.is_on() {
            return self.record_begin(block, size);
        }
        self.requested(block, size, allocator::usable_size(block));
        self.may_follow(block);
    }

    /// One block in [`BLOCKS_PER_FOLLOWED`] is followed. Its thread counts: were it the address
    /// that decides, the few addresses that a program uses again and again would decide the shares.
    #[inline(always)]
    fn may_follow(&self, block: Pointer) {
        let left = self.thread.until_followed.get();
        self.thread.until_followed.set(left.wrapping_sub(1));
        if left <= 1 {
            self.follow(block, left == 1);
        }
    }

    #[cold]
    #[inline(never)]
    fn follow(&self, block: Pointer, is_due: bool) {
        let when = now();
        // No period of the program's calls falls into step with this.
        let spread = hash_of(core::ptr::without_provenance_mut(when as usize)) >> 40;
        let gap = 1 + spread as u32 % (2 * BLOCKS_PER_FOLLOWED - 1);
        self.thread.until_followed.set(gap);
        if is_due && !block.is_null() {
            self.note_birth(block, when);
        }
    }

    #[inline(always)]
    fn record_begin(&self, block: Pointer, size: usize) {
        let kind = record::kind_of(plain_kind(self.state), self.align, block);
        record::note_begin(block, size);
        let align = u64::from(self.align);
        record::write(self.thread, self.mode, kind, align, block, size);
    }

    /// The life of a block ends.
    #[inline(always)]
    pub fn end(&self, block: Pointer) {
        if self.mode.is_on() {
            let kind = end_kind(self.state);
            return record::note_end(self.thread, self.mode, kind, block);
        }
        let usable = allocator::usable_size(block);
        self.add(&self.slot.cell.ended, usable as u64);
        self.pass_on();
        if let Some(birth) = take_if_followed(block) {
            self.note_end(birth);
        }
    }

    /// Something else was done, of this kind of record.
    #[inline(always)]
    pub fn did(&self, kind: Kind, block: Pointer) {
        if self.mode.is_on() {
            record::write(self.thread, self.mode, kind, 0, block, 0);
        }
    }

    /// A block is about to be resized. Returns what is known of it, because the old address may
    /// belong to another thread as soon as the block has moved.
    #[inline(always)]
    pub fn before_resize(&self, block: Pointer) -> Old {
        if self.mode.is_on() {
            record::note_end(self.thread, self.mode, Kind::ReallocBegin, block);
            return Old {
                block,
                usable: 0,
                birth: None,
            };
        }
        Old {
            block,
            usable: allocator::usable_size(block),
            birth: take_if_followed(block),
        }
    }

    /// A block was resized, or (if the answer is null) freed or left.
    #[inline(always)]
    pub fn resized(&self, old: Old, moved: Pointer, size: usize) {
        if self.mode.is_on() {
            record::note_begin(moved, size);
            let kind = Kind::ReallocEnd;
            return record::write(self.thread, self.mode, kind, 0, moved, size);
        }
        let Old {
            block,
            usable: old,
            birth,
        } = old;
        let stays = moved == block || (moved.is_null() && size != 0);
        if stays {
            if let Some(birth) = birth {
                self.note_birth(block, birth.when);
            }
        } else if let Some(birth) = birth {
            self.note_end(birth);
        }
        if !moved.is_null() || size == 0 {
            self.add(&self.slot.cell.ended, old as u64);
        }
        if moved.is_null() {
            if size != 0 {
                self.add(&self.slot.cell.failed, 1);
            }
        } else {
            self.requested(moved, size, allocator::usable_size(moved));
            if !stays {
                self.may_follow(moved);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn note_birth(&self, block: Pointer, when: u64) {
        let slot_and_address = (segment::number(self.slot) as u64) << 48 | block.addr() as u64;
        if let Some(entry) = claim(block) {
            let birth = segment::birth(entry);
            birth
                .slot_and_address
                .store(slot_and_address, Ordering::Relaxed);
            birth.when.store(when, Ordering::Relaxed);
        }
        trim::if_requested();
    }

    #[cold]
    #[inline(never)]
    fn note_end(&self, birth: Born) {
        let header = segment::header();
        let me = segment::number(self.slot);
        let count = if me == birth.slot {
            &header.freed_here
        } else {
            &header.freed_elsewhere
        };
        count.fetch_add(1, Ordering::Relaxed);
        header.matrix[birth.slot % MATRIX_THREADS][me % MATRIX_THREADS]
            .fetch_add(1, Ordering::Relaxed);
        let life = now().saturating_sub(birth.when);
        header.lifetimes[class_of(life)].fetch_add(1, Ordering::Relaxed);
    }
}

/// The kind of record of a request without an alignment.
#[inline(always)]
pub fn plain_kind(state: State) -> Kind {
    match state {
        State::Calloc => Kind::Calloc,
        _ => Kind::Malloc,
    }
}

/// The kind of record of a block's end.
#[inline(always)]
pub fn end_kind(state: State) -> Kind {
    match state {
        State::SizedFree => Kind::SizedFree,
        _ => Kind::Free,
    }
}

/// What is known of a block before it is resized.
pub struct Old {
    block: Pointer,
    usable: usize,
    birth: Option<Born>,
}

/// The thread and the time of a birth.
struct Born {
    slot: usize,
    when: u64,
}

/// The part of a birth's first word that is the block's address; the slot lies above it.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// The group of entries that a block may have, and its tag.
#[inline(always)]
fn group_of(block: Pointer) -> (usize, u64) {
    let hash = hash_of(block);
    let group = hash >> (u64::BITS - GROUPS.trailing_zeros());
    (group as usize, (hash >> 40) & 0xff | 1)
}

/// An entry for a block. A block that is there keeps its entry: if later ones took it, those that
/// live long, which are those that other threads free, would be missing from the shares. None if
/// the group is full.
fn claim(block: Pointer) -> Option<usize> {
    let (group, tag) = group_of(block);
    if let Some(entry) = entry_of(block, group, tag) {
        // An end that nobody counted.
        return Some(entry);
    }
    let tags = segment::tags(group);
    let word = tags.load(Ordering::Relaxed);
    let place = (0..GROUP_ENTRIES).find(|place| byte_of(word, *place) == 0)?;
    let claimed = word | tag << (8 * place);
    // Of two threads that claim at a time, one has its block followed.
    tags.compare_exchange(word, claimed, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
        .then_some(group * GROUP_ENTRIES + place)
}

/// The entry that has a block.
fn entry_of(block: Pointer, group: usize, tag: u64) -> Option<usize> {
    let word = segment::tags(group).load(Ordering::Relaxed);
    let has_block = |place: &usize| {
        let birth = segment::birth(group * GROUP_ENTRIES + place);
        let slot_and_address = birth.slot_and_address.load(Ordering::Relaxed);
        byte_of(word, *place) == tag && slot_and_address & ADDRESS_BITS == block.addr() as u64
    };
    let place = (0..GROUP_ENTRIES).find(has_block)?;
    Some(group * GROUP_ENTRIES + place)
}

fn byte_of(word: u64, place: usize) -> u64 {
    word >> (8 * place) & 0xff
}

/// Takes the birth of a block out of the table, if the block is followed. One word of tags, which
/// hardly change, is read for most blocks.
#[inline(always)]
fn take_if_followed(block: Pointer) -> Option<Born> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (group, tag) = group_of(block);
    // A byte is zero where the tag stands.
    let others = segment::tags(group).load(Ordering::Relaxed) ^ (tag * ONES);
    let has_zero = others.wrapping_sub(ONES) & !others & (ONES << 7);
    if has_zero == 0 {
        return None;
    }
    take(block, group, tag)
}

/// The birth of a block; none if the tag is that of another one.
#[cold]
#[inline(never)]
fn take(block: Pointer, group: usize, tag: u64) -> Option<Born> {
    let entry = entry_of(block, group, tag)?;
    let birth = segment::birth(entry);
    let slot_and_address = birth.slot_and_address.load(Ordering::Relaxed);
    let when = birth.when.load(Ordering::Relaxed);
    birth.slot_and_address.store(0, Ordering::Relaxed);
    let free = !(0xff << (8 * (entry % GROUP_ENTRIES)));
    segment::tags(group).fetch_and(free, Ordering::Relaxed);
    Some(Born {
        slot: (slot_and_address >> 48) as usize,
        when,
    })
}
