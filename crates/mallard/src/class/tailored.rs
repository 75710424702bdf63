//! Classes cut to what the process asks for.
//!
//! Between two classes of the table lie a fifth to a seventh of a size. A program that asks for one
//! size again and again, as for its nodes or for pages with a header of its own (1,032 bytes of
//! 1,280), loses as much of its memory. Finer steps for all would cost small heaps more than they
//! save, in slabs that are begun and stacks that fill. So a class is added where it has proved to
//! be worth something: of a class that has many slabs, one request is looked at for each refill of
//! a stack; when another slab is made and the smaller requests would save [`WORTH`] bytes, and one
//! part in [`PART`], of what the class has, they have a class of their own from then on.
//!
//! What was allocated before stays of the class that it was of, as the page map says. So a free
//! that goes by the size that its program gives may put such a block on a tailored stack: it is
//! larger than it need be there, and goes back to the slab that it is of ([`Class::has_older_of`]).
//!
//! A block's usable size may come to be less than was told before it was asked for. Who asks
//! (`nallocx`) may rely on the answer, so nothing is tailored any more after that
//! ([`keep_as_they_are`]).
//!
//! Samples are counted without read-modify-writes: what two threads lose to each other does not
//! matter.

use super::{
    Class, MEDIUM_GRAIN, Place, SMALL_GRAIN, SlabShape, TABLE_MAX, TABLED, TABLES, TAILORED,
};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
use core::cmp::Ordering::{Equal, Greater, Less};

/// Bytes that a tailored class must save to be made: a few slabs.
const WORTH: usize = 128 * 1024;
/// What it must save of a block, as one part of so many. Sizes that are spread over the step would
/// save less, and are served worse by two classes, whose blocks cannot stand in for each other.
const PART: usize = 12;
/// The requests that may want a longer block than the class is cut to are one in so many at most.
/// So the largest that would do with a smaller block has to come that often, or it is one of the
/// others: a program that asks for one size all the time asks for a few others of the step once.
const LONGER: usize = 8;
/// Samples that are no chance any more, and as many as are taken before the class is considered
/// again and all begins anew.
const ENOUGH: usize = 16;
const MANY: u16 = 64;
/// The first class that another can be cut from: below it stand all multiples of the least
/// alignment.
const FIRST: usize = 10;
const SMALLEST: usize = 16;

/// What was seen of the requests for a class.
struct Samples {
    all: AtomicU16,
    /// Those that would be served by blocks smaller by one part of [`PART`] at least.
    small: AtomicU16,
    /// The size that serves these, and those of them that need all of it.
    top: AtomicU16,
    at_top: AtomicU16,
    /// The size that serves the others of them.
    second: AtomicU16,
    /// Slabs that the class had when another was cut from it: for requests that are of that one
    /// now.
    before: AtomicU32,
}

static SAMPLES: [Samples; TABLED + 1 - FIRST] = [const {
    Samples {
        all: AtomicU16::new(0),
        small: AtomicU16::new(0),
        top: AtomicU16::new(0),
        at_top: AtomicU16::new(0),
        second: AtomicU16::new(0),
        before: AtomicU32::new(0),
    }
}; TABLED + 1 - FIRST];
/// Whether any class has so many slabs that requests are looked at.
static WATCHING: AtomicBool = AtomicBool::new(false);
/// Whether the classes have to stay as they are.
static FIXED: AtomicBool = AtomicBool::new(false);
/// Whether a thread is making one. In the child of a fork that fell into this there are no further
/// ones.
static MAKING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU8 = AtomicU8::new(0);
/// What each is cut from.
static FROM: [AtomicU8; TAILORED] = [const { AtomicU8::new(0) }; TAILORED];

/// How many there are.
#[inline]
pub fn count() -> usize {
    COUNT.load(Ordering::Acquire) as usize
}

/// Whether classes may be added at all, before the first is.
pub fn allow(yes: bool) {
    FIXED.store(!yes, Ordering::Relaxed);
}

/// No further ones: someone was told how large blocks are.
pub fn keep_as_they_are() {
    FIXED.store(true, Ordering::Relaxed);
}

/// Whether [`note`] wants to know of requests.
#[inline(always)]
pub fn is_watching() -> bool {
    WATCHING.load(Ordering::Relaxed)
}

impl Class {
    /// Whether it is none of the table's.
    #[inline]
    pub fn is_tailored(self) -> bool {
        self.index().wrapping_sub(TABLED + 1) < TAILORED
    }

    /// The class of the table that this tailored one is cut from.
    pub fn cut_from(self) -> Class {
        Class(FROM[self.index() - TABLED - 1].load(Ordering::Relaxed))
    }

    /// Whether a block of another class may lie where those of this class do: it was allocated
    /// before this was cut from its class.
    pub fn has_older_of(self, other: Class) -> bool {
        self.is_tailored() && self.cut_from() == other
    }

    /// Whether requests of `n` bytes are of this tailored class.
    pub fn serves(self, n: usize) -> bool {
        n <= self.size() && self.cut_from() == Class::of(n)
    }

    /// The samples of this class, where requests for it are looked at.
    #[inline]
    fn samples(self) -> Option<&'static Samples> {
        SAMPLES.get(self.index().wrapping_sub(FIRST))
    }
}

/// A request of `n` bytes was the one for which its stack of this class had no block.
#[cold]
#[inline(never)]
pub fn note(class: Class, n: usize) {
    let Some(samples) = class.samples() else {
        return;
    };
    // Enough until another slab is wanted: threads do not write here all the time.
    if samples.all.load(Ordering::Relaxed) >= MANY {
        return;
    }
    let size = class.shape().size as usize;
    // Tailored sizes are multiples of what blocks are aligned to, and of what the tables can tell
    // apart.
    let grain = if size <= TABLE_MAX {
        SMALLEST
    } else {
        MEDIUM_GRAIN
    };
    let cut = n.next_multiple_of(grain);
    if (size - cut.min(size)) * PART >= size {
        samples.note_small(cut as u16);
    }
    count_one(&samples.all);
}

impl Samples {
    /// A request that a block of this size would serve.
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

    /// Requests, those that a smaller block would serve, and its size.
    fn read(&self) -> (usize, usize, usize) {
        let read = |count: &AtomicU16| count.load(Ordering::Relaxed) as usize;
        let (all, small, at_top) = (read(&self.all), read(&self.small), read(&self.at_top));
        match at_top * LONGER <= all {
            true => (all, small.saturating_sub(at_top), read(&self.second)),
            false => (all, small, read(&self.top)),
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

/// A class of so many slabs needs another: perhaps smaller requests had better have one of their
/// own.
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
    if all < ENOUGH {
        return;
    }
    let shape = class.shape();
    let served = slabs.saturating_sub(samples.before.load(Ordering::Relaxed));
    let (size, blocks) = (
        shape.size as usize,
        served as usize * shape.regions as usize,
    );
    // Of so many times the blocks that there are.
    let saved = small * (size - cut);
    let few_are_longer = (all - small.min(all)) * LONGER <= all;
    if few_are_longer && saved * PART >= all * size && saved * blocks >= all * WORTH {
        make(class, cut);
        samples.before.store(slabs, Ordering::Relaxed);
        samples.begin_anew();
    } else if all >= MANY as usize {
        samples.begin_anew();
    }
}

/// Adds a class for those requests of a class that are of `cut` bytes at most.
#[cold]
#[inline(never)]
fn make(from: Class, cut: usize) {
    if FIXED.load(Ordering::Relaxed) || MAKING.swap(true, Ordering::Acquire) {
        return;
    }
    let made = COUNT.load(Ordering::Relaxed);
    // Samples may be of aligned requests, which go by the table alone, and those of one moment may
    // have been read with a cut of another: a class is cut where it is whole.
    if (made as usize) < TAILORED && Class::for_request(cut) == from {
        let class = Class(TABLED as u8 + 1 + made);
        // SAFETY: the class is published below, and one thread makes classes at a time.
        unsafe { TABLES.shapes.set(class, SlabShape::of(cut)) };
        FROM[made as usize].store(from.0, Ordering::Relaxed);
        // By a size other than 0 those know the class who go through all of them.
        TABLES.sizes[class.index()].store(cut as u32, Ordering::Release);
        COUNT.store(made + 1, Ordering::Release);
        publish(from, class, cut);
    }
    MAKING.store(false, Ordering::Release);
}

/// From now on the requests of `from` up to `cut` bytes are of `class`.
///
/// Threads read the tables without an order; who finds the class there has a fence before its shape
/// ([`super::shape::Shapes::get`]).
fn publish(from: Class, class: Class, cut: usize) {
    let (from, to) = (Place::of(from), Place::of(class));
    let small = TABLES.small.iter().take(cut / SMALL_GRAIN + 1);
    let medium = TABLES.medium.iter().take(cut / MEDIUM_GRAIN + 1);
    for entry in small.chain(medium) {
        if entry.load(Ordering::Relaxed) == from.offset() as u32 {
            entry.store(to.offset() as u32, Ordering::Release);
        }
    }
}
