//! Classes cut to what the process asks for.
//!
//! Worth (2026-11-29): peak memory. The row `sqlite3` 62.2 → 54.1 MiB at the same time; earlier,
//! `jq` −8 and −9 %. Of the suite only `sqlite3` and `z3` have such sizes, all others are at 1.00.
//! Measure with the option `tailored_classes:false`; remove it when these programs and `jq` peak no
//! higher that way.
//!
//! Adjacent classes of the table differ by a fifth to a seventh in size. A program that asks for
//! one size again and again, for its nodes or for pages with a header (1,032 bytes of 1,280), loses
//! that share of its memory. Finer steps for all would cost small heaps more than they save, in
//! partly filled slabs and longer stacks. So a class is added only where it pays. For a class with
//! many slabs, one request is sampled for each refill of a stack. When another slab is made and the
//! smaller requests would save [`WORTH_BYTES`], and one part in [`SAVED_PART`], of the memory of
//! the class, they get a class of their own.
//!
//! Older blocks keep their class: a free takes the class from the page map, never from the size
//! that the program gives.
//!
//! A block's usable size may be less than was reported before the allocation. A program that asks
//! (`nallocx`) may rely on the answer, so no class is tailored after that ([`keep_as_they_are`]).
//!
//! Samples are counted without atomic read-modify-writes: lost updates do not matter.

use super::{
    Class, MEDIUM_GRAIN, SlabShape, StackOffset, TABLE_MAX, TABLED, TABLES, TAILORED, hidden,
};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
use core::cmp::Ordering::{Equal, Greater, Less};

/// Bytes that a tailored class must save to be made: a few slabs.
const WORTH_BYTES: usize = 128 * 1024;
/// What it must save of a block, as one part in this many. Sizes spread over the step would save
/// less, and two classes serve them worse, because their blocks cannot replace each other.
const SAVED_PART: usize = 12;
/// At most one part in this many of the requests may need a longer block than the cut. The largest
/// request that a smaller block could serve must come at least that often, or it counts among the
/// longer ones: a program that asks for one size all the time also asks once for a few others of
/// the step.
const LONGER_PART: usize = 8;
/// Samples that are more than chance, and samples after which sampling stops, and restarts at the
/// next consideration.
const ENOUGH_SAMPLES: usize = 16;
const MANY_REQUESTS: u16 = 64;
/// The first class that another can be cut from: below it, all multiples of the least alignment are
/// classes.
const FIRST_CLASS: usize = 10;
/// The least alignment of tailored blocks, in bytes.
const ALIGN_MIN: usize = 16;

/// Samples of the requests for a class.
struct Samples {
    all: AtomicU16,
    /// Requests that a block smaller by at least one part of [`SAVED_PART`] would serve.
    small: AtomicU16,
    /// The size that serves these, and how many of them need all of it.
    top: AtomicU16,
    at_top: AtomicU16,
    /// The size that serves these but for the requests that need all of `top`.
    second: AtomicU16,
    /// Slabs that the class had when another was last cut from it, for requests that now belong to
    /// the other.
    before: AtomicU32,
}

static SAMPLES: [Samples; TABLED + 1 - FIRST_CLASS] = [const {
    Samples {
        all: AtomicU16::new(0),
        small: AtomicU16::new(0),
        top: AtomicU16::new(0),
        at_top: AtomicU16::new(0),
        second: AtomicU16::new(0),
        before: AtomicU32::new(0),
    }
}; TABLED + 1 - FIRST_CLASS];
/// Whether any class has enough slabs for sampling.
static WATCHING: AtomicBool = AtomicBool::new(false);
/// Whether no more classes may be added.
static FIXED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU8 = AtomicU8::new(0);
/// The class that each is cut from.
static FROM: [AtomicU8; TAILORED] = [const { AtomicU8::new(0) }; TAILORED];

/// How many tailored classes there are.
#[inline]
pub fn count() -> usize {
    COUNT.load(Ordering::Acquire) as usize
}

/// Sets whether classes may be added; called before the first is.
pub fn allow(yes: bool) {
    FIXED.store(!yes, Ordering::Relaxed);
}

/// Stops adding classes: a program has learnt how large blocks are.
pub fn keep_as_they_are() {
    FIXED.store(true, Ordering::Relaxed);
}

/// Whether a program has learnt that.
pub fn are_as_they_were() -> bool {
    FIXED.load(Ordering::Relaxed)
}

/// Whether to call [`note`] for requests.
#[inline(always)]
pub fn is_watching() -> bool {
    WATCHING.load(Ordering::Relaxed)
}

impl Class {
    /// Whether the class is tailored.
    #[inline]
    pub fn is_tailored(self) -> bool {
        self.index().wrapping_sub(TABLED + 1) < TAILORED
    }

    /// The class of the table that this tailored one is cut from.
    pub fn cut_from(self) -> Class {
        Class(FROM[self.index() - TABLED - 1].load(Ordering::Relaxed))
    }

    /// Whether requests of `n` bytes belong to this tailored class.
    pub fn serves(self, n: usize) -> bool {
        n <= self.size() && self.cut_from() == Class::of(n)
    }

    /// The samples of this class, if it is one that others can be cut from.
    #[inline]
    fn samples(self) -> Option<&'static Samples> {
        SAMPLES.get(self.index().wrapping_sub(FIRST_CLASS))
    }
}

/// Samples a request of `n` bytes, which found its stack of this class empty.
#[cold]
#[inline(never)]
pub fn note(class: Class, n: usize) {
    let Some(samples) = class.samples() else {
        return;
    };
    // Enough until the next slab is made: spare threads the writes.
    if samples.all.load(Ordering::Relaxed) >= MANY_REQUESTS {
        return;
    }
    let size = class.shape().size as usize;
    // Tailored sizes are multiples of the alignment of blocks, and of the tables' grain.
    let grain = if size <= TABLE_MAX {
        ALIGN_MIN
    } else {
        MEDIUM_GRAIN
    };
    let cut = n.next_multiple_of(grain);
    if (size - cut.min(size)) * SAVED_PART >= size {
        samples.note_small(cut as u16);
    }
    count_one(&samples.all);
}

impl Samples {
    /// Counts a request that a block of this size would serve.
    fn note_small(&self, cut: u16) {
        count_one(&self.small);
        let (top, second) = (self.top.load(Ordering::Relaxed), &self.second);
        match cut.cmp(&top) {
            Less => second.store(cut.max(second.load(Ordering::Relaxed)), Ordering::Relaxed),
            Equal => count_one(&self.at_top),
            Greater => {
                second.store(top, Ordering::Relaxed);
                self.top.store(cut, Ordering::Relaxed);
                self.at_top.store(1, Ordering::Relaxed);
            }
        }
    }

    /// The number of requests, the number that a smaller block would serve, and its size.
    fn read(&self) -> (usize, usize, usize) {
        let read = |count: &AtomicU16| count.load(Ordering::Relaxed) as usize;
        let (all, small, at_top) = (read(&self.all), read(&self.small), read(&self.at_top));
        if at_top * LONGER_PART <= all {
            (all, small.saturating_sub(at_top), read(&self.second))
        } else {
            (all, small, read(&self.top))
        }
    }

    fn begin_anew(&self) {
        let counts = [
            &self.all,
            &self.small,
            &self.top,
            &self.at_top,
            &self.second,
        ];
        for count in counts {
            count.store(0, Ordering::Relaxed);
        }
    }
}

#[inline]
fn count_one(count: &AtomicU16) {
    let before = count.load(Ordering::Relaxed);
    count.store(before.saturating_add(1), Ordering::Relaxed);
}

/// Called when a class with `slabs` slabs needs another: adds a class for its smaller requests if
/// that pays.
#[cold]
#[inline(never)]
pub fn consider(class: Class, slabs: u32) {
    let Some(samples) = class.samples() else {
        return;
    };
    if !is_watching() {
        WATCHING.store(true, Ordering::Relaxed);
    }
    let (all, small, cut) = samples.read();
    if all < ENOUGH_SAMPLES {
        return;
    }
    let shape = class.shape();
    let served = slabs.saturating_sub(samples.before.load(Ordering::Relaxed));
    let (size, blocks) = (
        shape.size as usize,
        served as usize * shape.regions as usize,
    );
    // For `all` blocks; scaled below to the blocks that there are.
    let saved = small * (size - cut);
    let few_are_longer = (all - small.min(all)) * LONGER_PART <= all;
    if few_are_longer && saved * SAVED_PART >= all * size && saved * blocks >= all * WORTH_BYTES {
        make(class, cut);
        samples.before.store(slabs, Ordering::Relaxed);
        samples.begin_anew();
    } else if all >= MANY_REQUESTS as usize {
        samples.begin_anew();
    }
}

/// Adds a class for those requests of `from` that are of at most `cut` bytes.
#[cold]
#[inline(never)]
fn make(from: Class, cut: usize) {
    if FIXED.load(Ordering::Relaxed) {
        return;
    }
    let Some(_changing) = hidden::try_change() else {
        return;
    };
    let made = COUNT.load(Ordering::Relaxed);
    // Samples may come from aligned requests, which only use the table, and sampled sizes and
    // counts may not match: only cut a class that still serves `cut`.
    if (made as usize) < TAILORED && Class::for_request(cut) == from {
        let class = Class(TABLED as u8 + 1 + made);
        // SAFETY: the class is published below, and one thread makes classes at a time.
        unsafe { TABLES.shapes.set(class.index(), SlabShape::of(cut)) };
        FROM[made as usize].store(from.0, Ordering::Relaxed);
        // A size other than 0 makes the class visible to code that walks all classes.
        TABLES.sizes[class.index()].store(cut as u32, Ordering::Release);
        COUNT.store(made + 1, Ordering::Release);
        publish(from, class, cut);
    }
}

/// Assigns the requests of `from` up to `cut` bytes to `class`.
///
/// Threads read the tables with relaxed loads; a thread that finds the class there runs a fence
/// before it reads the shape (`late_values`).
fn publish(from: Class, class: Class, cut: usize) {
    hidden::assign(StackOffset::of(from), StackOffset::of(class), cut);
}
