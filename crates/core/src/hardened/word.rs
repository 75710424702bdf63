//! The word at the end of each block of a hardened slab, and the bytes around it.
//!
//! A *place* is a region of a slab: the program's bytes, slack, and the word in the last 8 bytes.
//! The word says whether the block is in use, how long the slack is, which family of functions gave
//! the block out, and where it was allocated and freed. Its lowest bits are a check of the rest and
//! of the address, keyed with a secret of the process: a word that was overwritten, or that
//! belongs elsewhere, does not match. This stops accidents and attackers that write blindly, not
//! those that can read memory.
//!
//! While a block is in use, the first [`SLACK`] bytes behind the program's hold a pattern. While it
//! is free, all of the place but the word is zero, and this is verified before it is handed out
//! again: all of it up to [`VERIFIED`] bytes, else some parts of it. A word of zero is that of a
//! block that was never in use, or whose memory went back to the system: the rest is zero too.

use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::hint;

/// Bytes of the word.
pub const WORD: usize = size_of::<u64>();
/// The most bytes of slack that are filled and checked.
pub const SLACK: usize = 64;
/// From this size on, a block has at least [`SLACK`] bytes of slack.
const TAILED: usize = 512;
/// Up to this size, all of a free place is verified.
const VERIFIED: usize = 256;
/// The bytes of each part that is verified of a longer one.
const PART: usize = 64;

/// The functions by which a block was asked for, or is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Family {
    Malloc,
    New,
    NewArray,
    /// Of no family: with an alignment, or by functions that no family's own can free.
    Any,
}

impl Family {
    const ALL: [Family; 4] = [Family::Malloc, Family::New, Family::NewArray, Family::Any];

    /// Whether functions of one family may free blocks of the other.
    pub fn suits(self, other: Family) -> bool {
        self == other || self == Family::Any || other == Family::Any
    }
}

/// The secret of the process.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Keys {
    add: u64,
    multiply: u64,
    /// One byte, eight times: what slack is filled with. Not zero, and no letter.
    pattern: u64,
}

impl Keys {
    pub const fn of([add, multiply]: [u64; 2]) -> Keys {
        Keys {
            add,
            multiply: multiply | 1,
            pattern: (0x80 | add >> 57) * 0x0101_0101_0101_0101,
        }
    }
}

/// The lowest bit, so that a zero in the first byte behind the slack is seen, and the check above
/// it, so that any other byte most likely is.
const LIVE: u64 = 1;
const CHECK_BITS: u32 = 15;
const CHECK: u64 = ((1 << CHECK_BITS) - 1) << 1;
const SLACK_SHIFT: u32 = 16;
const SLACK_BITS: u32 = 13;
const FAMILY_SHIFT: u32 = 29;
const ALLOCATED_SHIFT: u32 = 32;
const FREED_SHIFT: u32 = 48;

/// The word of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(u64);

impl Word {
    /// Of a block that was never in use.
    const NONE: Word = Word(0);

    /// The word with these bits, for the place at `at`.
    #[inline(always)]
    fn sealed(rest: u64, at: usize, keys: &Keys) -> Word {
        let mixed = (rest ^ (at as u64).wrapping_add(keys.add)).wrapping_mul(keys.multiply);
        Word(rest | mixed >> (64 - CHECK_BITS) << 1)
    }

    #[inline(always)]
    fn live(slack: usize, family: Family, site: u16, at: usize, keys: &Keys) -> Word {
        let rest = (slack as u64) << SLACK_SHIFT
            | (family as u64) << FAMILY_SHIFT
            | LIVE
            | (site as u64) << ALLOCATED_SHIFT;
        Self::sealed(rest, at, keys)
    }

    #[inline(always)]
    fn freed(self, site: u16, at: usize, keys: &Keys) -> Word {
        let rest = (self.0 & !CHECK & !LIVE) << 16 >> 16;
        Self::sealed(rest | (site as u64) << FREED_SHIFT, at, keys)
    }

    #[inline(always)]
    fn is_whole(self, at: usize, keys: &Keys) -> bool {
        self == Self::sealed(self.0 & !CHECK, at, keys)
    }

    #[inline(always)]
    fn is_live(self) -> bool {
        self.0 & LIVE != 0
    }

    /// Bytes between the program's and the word.
    #[inline(always)]
    pub fn slack(self) -> usize {
        (self.0 >> SLACK_SHIFT) as usize & ((1 << SLACK_BITS) - 1)
    }

    pub fn family(self) -> Family {
        Family::ALL[(self.0 >> FAMILY_SHIFT) as usize % Family::ALL.len()]
    }

    /// Whether it is of exactly this family.
    #[inline(always)]
    pub fn is_of(self, family: Family) -> bool {
        (self.0 >> FAMILY_SHIFT) as u8 & 3 == family as u8
    }

    /// Where the block was allocated, and where it was freed last: sites, 0 for unknown.
    pub fn sites(self) -> (u16, u16) {
        let at = |shift: u32| (self.0 >> shift) as u16;
        (at(ALLOCATED_SHIFT), at(FREED_SHIFT))
    }
}

/// What a place shows of a misuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The block is free.
    Free(Word),
    /// The byte at this offset from the block, behind its end, changed.
    Over(usize, Word),
    /// The word changed, at this offset from the block; it does not say any more how long the block
    /// is.
    Word(usize),
    /// The word in front of the block changed.
    Front,
    /// Bytes of a free block changed: the offset of the first.
    Freed(usize, Word),
    /// The word of a free block changed.
    FreeWord,
}

/// A place for a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WordPlace {
    pub at: usize,
    /// All bytes, those of the word too. A multiple of 8, at least 16.
    pub bytes: usize,
}

/// The bytes of a place for a request of `size` bytes.
#[inline(always)]
pub const fn place_for(size: usize) -> usize {
    size + WORD + if size >= TAILED { SLACK } else { 0 }
}

/// Loads eight bytes of a place.
///
/// # Safety
/// They are in memory of a slab, which the caller may read.
#[inline(always)]
unsafe fn load(at: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (at as *const u64).read_unaligned() }
}

/// # Safety
/// As for [`load`], and nothing else uses these bytes.
#[inline(always)]
unsafe fn store(at: usize, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { (at as *mut u64).write_unaligned(value) }
}

/// The upper `slack` bytes of a word; at most 7.
#[inline(always)]
fn upper(slack: usize) -> u64 {
    !(u64::MAX >> (8 * slack))
}

impl WordPlace {
    #[inline(always)]
    fn word_at(self) -> usize {
        self.at + self.bytes - WORD
    }

    /// The word of the place that ends at `end`. Other threads write words of places beside ours.
    ///
    /// # Safety
    /// It ends inside a hardened slab, at a multiple of 8.
    #[inline(always)]
    unsafe fn word_before(end: usize) -> &'static AtomicU64 {
        // SAFETY: the caller's promise.
        unsafe { &*((end - WORD) as *const AtomicU64) }
    }

    /// # Safety
    /// The place is a region of a hardened slab.
    #[inline(always)]
    unsafe fn word(self) -> Word {
        // SAFETY: the caller's promise.
        Word(unsafe { Self::word_before(self.at + self.bytes) }.load(Ordering::Relaxed))
    }

    /// # Safety
    /// As for [`WordPlace::word`], and the block is the caller's.
    #[inline(always)]
    unsafe fn set_word(self, word: Word) {
        // SAFETY: the caller's promise.
        unsafe { Self::word_before(self.at + self.bytes) }.store(word.0, Ordering::Relaxed);
    }

    /// Puts the block in use for a request of `size` bytes. Returns false if something was written
    /// to it while it was free.
    ///
    /// # Safety
    /// The place is a free region of a hardened slab, which the caller has got.
    #[inline(always)]
    #[must_use]
    pub unsafe fn give_out(self, size: usize, family: Family, site: u16, keys: &Keys) -> bool {
        // SAFETY: the caller's promise; what is read and written lies inside the place.
        unsafe {
            let word = self.word();
            let is_free = word == Word::NONE || !word.is_live() && word.is_whole(self.at, keys);
            if !is_free || !self.is_clear() {
                return false;
            }
            let slack = self.bytes - WORD - size;
            self.fill_slack(slack, keys);
            self.set_word(Word::live(slack, family, site, self.at, keys));
        }
        true
    }

    /// What was written to the free block.
    ///
    /// # Safety
    /// As for [`WordPlace::give_out`].
    #[cold]
    #[inline(never)]
    pub unsafe fn written(self, keys: &Keys) -> Damage {
        // SAFETY: the caller's promise.
        unsafe {
            let word = self.word();
            if word != Word::NONE && (word.is_live() || !word.is_whole(self.at, keys)) {
                return Damage::FreeWord;
            }
            let mut at = self.at;
            while at < self.word_at() && (at as *const u8).read() == 0 {
                at += 1;
            }
            Damage::Freed(at - self.at, word)
        }
    }

    /// Whether what is verified of a free place is zero.
    #[inline(always)]
    unsafe fn is_clear(self) -> bool {
        // SAFETY: inside the place.
        unsafe {
            if self.bytes <= VERIFIED {
                return Self::are_zero(self.at, self.word_at());
            }
            // The first part, the last one, and one between them that differs from block to block.
            let between = (self.bytes - WORD - 2 * PART) / WORD;
            let any = ((self.at >> 4) as u32).wrapping_mul(0x9e37_79b1);
            let chosen = ((any as u64 * between as u64) >> 32) as usize;
            let middle = self.at + PART + chosen * WORD;
            Self::are_zero(self.at, self.at + PART)
                & Self::are_zero(middle, middle + PART)
                & Self::are_zero(self.word_at() - PART, self.word_at())
        }
    }

    /// Whether all words from one address to another, at least one, are zero.
    #[inline(always)]
    unsafe fn are_zero(from: usize, to: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut at, last) = (from, to - WORD);
            let mut all = load(last);
            while at < last {
                hint::step_by_step();
                all |= load(at) | load(at + WORD);
                at += 2 * WORD;
            }
            all == 0
        }
    }

    /// Fills the slack: the last `slack` bytes before the word, or the first [`SLACK`] of them.
    #[inline(always)]
    unsafe fn fill_slack(self, slack: usize, keys: &Keys) {
        let end = self.word_at();
        // SAFETY: inside the place, which has more than 8 bytes before the word if its slack has.
        unsafe {
            if slack < WORD {
                let mask = upper(slack);
                let old = load(end - WORD);
                store(end - WORD, old & !mask | keys.pattern & mask);
                return;
            }
            let start = end - slack;
            let end = start + if slack < SLACK { slack } else { SLACK };
            let mut at = start;
            while at < end - WORD {
                hint::step_by_step();
                store(at, keys.pattern);
                at += WORD;
            }
            store(end - WORD, keys.pattern);
        }
    }

    #[inline(always)]
    unsafe fn is_slack_whole(self, slack: usize, keys: &Keys) -> bool {
        let end = self.word_at();
        // SAFETY: as in `fill_slack`.
        unsafe {
            if slack < WORD {
                return (load(end - WORD) ^ keys.pattern) & upper(slack) == 0;
            }
            let start = end - slack;
            let end = start + if slack < SLACK { slack } else { SLACK };
            let (mut at, mut changed) = (start, load(end - WORD) ^ keys.pattern);
            while at < end - WORD {
                hint::step_by_step();
                changed |= load(at) ^ keys.pattern;
                at += WORD;
            }
            changed == 0
        }
    }

    /// The word of the block, if it is in use.
    ///
    /// # Safety
    /// The place is a region of a hardened slab.
    #[inline(always)]
    pub unsafe fn in_use(self, keys: &Keys) -> Option<Word> {
        // SAFETY: the caller's promise.
        let word = unsafe { self.word() };
        (word.is_live() && word.is_whole(self.at, keys)).then_some(word)
    }

    /// Whether what lies around the block in use is as it was: its slack, and the word of the place
    /// in front, if there is one.
    ///
    /// # Safety
    /// The place is a region of a hardened slab, and this is its word.
    #[inline(always)]
    pub unsafe fn is_whole_around(self, word: Word, is_first: bool, keys: &Keys) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            self.is_slack_whole(word.slack(), keys) && (is_first || self.is_front_whole(keys))
        }
    }

    /// Whether the word of the place in front is as it was.
    #[inline(always)]
    unsafe fn is_front_whole(self, keys: &Keys) -> bool {
        // SAFETY: the caller's promise: there is one.
        let front = Word(unsafe { Self::word_before(self.at) }.load(Ordering::Relaxed));
        front.is_whole(self.at - self.bytes, keys) || front == Word::NONE
    }

    /// What is wrong with a block that is not in use, or with what lies around it.
    ///
    /// # Safety
    /// The place is a region of a hardened slab, and something is wrong with it.
    #[cold]
    #[inline(never)]
    pub unsafe fn damage(self, keys: &Keys) -> Damage {
        // SAFETY: the caller's promise.
        unsafe {
            let word = self.word();
            if word != Word::NONE && !word.is_whole(self.at, keys) {
                return Damage::Word(self.bytes - WORD);
            }
            if !word.is_live() {
                return Damage::Free(word);
            }
            match self.changed(word.slack(), keys) {
                Some(at) => Damage::Over(at, word),
                None => Damage::Front,
            }
        }
    }

    /// Marks the block as free, and clears it. Returns a number that differs from block to block
    /// and from process to process.
    ///
    /// # Safety
    /// The caller owns the block, which has this word.
    #[inline(always)]
    pub unsafe fn take_back(self, word: Word, site: u16, keys: &Keys) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let freed = word.freed(site, self.at, keys);
            self.set_word(freed);
            let random = (freed.0 & CHECK) as usize >> 1;
            if self.bytes > VERIFIED {
                (self.at as *mut u8).write_bytes(0, self.bytes - WORD);
                return random;
            }
            // Step by step: for such lengths, a call of a function costs more.
            let (mut at, end) = (self.at, self.word_at() - WORD);
            while at < end {
                hint::step_by_step();
                (at as *mut u128).write(0);
                at += 2 * WORD;
            }
            store(end, 0);
            random
        }
    }

    /// Changes the size of a block in use, and its family if one is given; `size` has room.
    ///
    /// # Safety
    /// The caller owns the block, which has this word.
    pub unsafe fn resize(self, word: Word, size: usize, family: Option<Family>, keys: &Keys) {
        let slack = self.bytes - WORD - size;
        let family = family.unwrap_or(word.family());
        // SAFETY: the caller's promise.
        unsafe {
            self.fill_slack(slack, keys);
            self.set_word(Word::live(slack, family, word.sites().0, self.at, keys));
        }
    }

    /// Writes the record of a large block: a number, and a word that covers it.
    ///
    /// # Safety
    /// The caller owns the place, which has 16 bytes.
    pub(super) unsafe fn enter(self, number: u64, family: Family, site: u16, keys: &Keys) {
        // SAFETY: the caller's promise.
        unsafe {
            store(self.at, number);
            let covered = self.at ^ number as usize;
            self.set_word(Word::live(0, family, site, covered, keys));
        }
    }

    /// The number that was entered, and its word; none if one of both changed.
    ///
    /// # Safety
    /// The place can be read.
    pub(super) unsafe fn entered(self, keys: &Keys) -> (u64, Option<Word>) {
        // SAFETY: the caller's promise.
        let (number, word) = unsafe { (load(self.at), self.word()) };
        let is_whole = word.is_live() && word.is_whole(self.at ^ number as usize, keys);
        (number, is_whole.then_some(word))
    }

    /// Fills the slack of this length.
    ///
    /// # Safety
    /// The caller owns the memory.
    pub(super) unsafe fn fill(self, slack: usize, keys: &Keys) {
        // SAFETY: the caller's promise.
        unsafe { self.fill_slack(slack, keys) }
    }

    /// The offset of the first byte of the slack that changed.
    ///
    /// # Safety
    /// The place can be read.
    pub(super) unsafe fn changed(self, slack: usize, keys: &Keys) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_slack_whole(slack, keys) {
                return None;
            }
            let start = self.bytes - WORD - slack;
            (start..).find(|&i| ((self.at + i) as *const u8).read() != keys.pattern as u8)
        }
    }

    /// Like [`WordPlace::size`], of a block whose byte at this offset lies behind it: for a large
    /// one, whose word says no size.
    pub fn size_within(self, word: Word, offset: usize) -> usize {
        self.size(word).min(offset)
    }

    /// Bytes of the block in use with this word.
    #[inline(always)]
    pub fn size(self, word: Word) -> usize {
        self.bytes - WORD - word.slack()
    }
}
