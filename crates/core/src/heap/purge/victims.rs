//! Chooses which free pages a purge returns, under the page heap's lock.
//!
//! Whole vacant chunks come first, from the highest address down (low ones are reused first), then
//! free pages of partly used chunks, the sparsest first. A chunk with huge pages that is nearly
//! full is left alone, because breaking a huge page costs more than the little that it would
//! return, unless everything is asked for. A huge page is resident as a whole: when it breaks, its
//! free pages that were never allocated go together with the freed ones; if no page of it was
//! freed, they go once the program is idle. The chosen pages are marked allocated ([`Batch`]) until
//! `rounds`, which makes the system calls, frees them again.

use crate::heap::State;
use crate::heap::huge::huge_pages;
use crate::heap::purge::advice::Range;
use crate::heap::purge::hold::Hold;
use crate::space::Segment;
use crate::space::chunk::{CHUNK_PAGES, Chunk};
use crate::sys::bits::{BitRun, Bits512};
use crate::sys::mem::{self, Discard};
use crate::sys::page::PAGE;
use core::cell::UnsafeCell;

/// Ranges handled in one batch.
pub(in crate::heap) const BATCH_RANGES: usize = mem::RANGES_MAX;

/// Which chunks with huge pages keep their free pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::heap) struct Spare {
    /// A chunk with more pages in use than this keeps its free ones.
    max_used: u16,
    /// Whether a chunk loses free pages that were never allocated: they are resident too.
    rest: bool,
}

impl Spare {
    /// No chunk keeps anything: everything is asked for.
    pub const NONE: Spare = Spare {
        max_used: u16::MAX,
        rest: true,
    };
    /// All freed pages go.
    pub const REST: Spare = Spare {
        rest: false,
        ..Spare::NONE
    };
    /// For pages that have decayed: what a nearly full chunk would return is not worth its huge
    /// page.
    pub const NEARLY_FULL: Spare = Spare {
        max_used: (CHUNK_PAGES - CHUNK_PAGES / 8) as u16,
        rest: false,
    };
    /// For a heap that has been idle for so long that no freed page is left.
    pub const IDLE: Spare = Spare {
        rest: true,
        ..Spare::NEARLY_FULL
    };
    /// Only vacant chunks go.
    pub const PARTLY_USED: Spare = Spare {
        max_used: 0,
        rest: false,
    };
}

/// The kind of page that is purged, and what it becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::heap) enum Step {
    DirtyToMuzzy,
    DirtyToClean,
    MuzzyToClean,
}

impl Step {
    /// When the system takes the memory.
    pub fn discard(self) -> Discard {
        match self {
            Step::DirtyToMuzzy => Discard::Lazily,
            Step::DirtyToClean | Step::MuzzyToClean => Discard::Now,
        }
    }

    /// Whether the system may take the memory later.
    pub fn is_lazy(self) -> bool {
        self == Step::DirtyToMuzzy
    }
}

/// How far a round goes.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Goal {
    /// How many pages of the kind may stay.
    pub limit: usize,
    /// The most pages to return: pages that are freed while system calls run are not part of the
    /// round.
    pub max: usize,
    /// When the meter allowed the round, which is a guess, in milliseconds; 0 if it is none.
    pub guessed: u64,
}

impl Goal {
    /// Goes down to `limit`, however many pages are returned or freed meanwhile.
    pub fn down_to(limit: usize) -> Goal {
        Goal::guess(0, limit, usize::MAX)
    }

    /// Goes down to `limit`, but returns no more than `max` pages, a guess made now.
    pub fn guess(now: u64, limit: usize, max: usize) -> Goal {
        Goal {
            limit,
            max,
            guessed: now,
        }
    }
}

/// Pages that are being returned, marked allocated meanwhile.
pub(in crate::heap) struct Batch {
    pub ranges: [Range; BATCH_RANGES],
    /// How many pages of each range are of the kind that is purged.
    kinds: [usize; BATCH_RANGES],
    pub len: usize,
    /// The sum of `kinds`.
    pub pages: usize,
    /// As in [`Goal`]; 0 if the system may take the memory later.
    pub guessed: u64,
    /// Whether hooks provided the pages: all of them or none.
    pub hooked: bool,
    /// Chunks whose huge pages the batch breaks.
    pub broken: [Option<&'static Chunk>; BATCH_RANGES],
    /// Chunks to choose ranges from.
    picked: [Option<&'static Chunk>; BATCH_RANGES],
}

/// The batches of a page heap. They are too large for the stack of the program's thread that
/// purges.
pub(in crate::heap) struct Batches(UnsafeCell<[Batch; 2]>);

// SAFETY: only the thread that holds the matching right to purge touches a batch.
unsafe impl Sync for Batches {}

impl Batches {
    pub const fn new() -> Batches {
        Batches(UnsafeCell::new([const { Batch::new() }; 2]))
    }

    /// The batch that goes with this right to return memory, the lock or the flag.
    pub fn of<'a>(&'a self, hold: &'a mut Hold) -> &'a mut Batch {
        let number = matches!(hold, Hold::Flag(_)) as usize;
        // SAFETY: a hold is exclusive among those of its kind, and stays borrowed as long as the
        // result.
        unsafe { &mut (*self.0.get())[number] }
    }
}

impl Batch {
    const fn new() -> Batch {
        Batch {
            ranges: [Range { addr: 0, pages: 0 }; BATCH_RANGES],
            kinds: [0; BATCH_RANGES],
            len: 0,
            pages: 0,
            guessed: 0,
            hooked: false,
            broken: [None; BATCH_RANGES],
            picked: [None; BATCH_RANGES],
        }
    }

    fn is_full(&self) -> bool {
        self.len == BATCH_RANGES
    }

    /// Records, once, the chunk that contains the next range; there is room for one more range.
    fn breaks(&mut self, chunk: &'static Chunk) {
        let before = self.broken[..self.len].iter().flatten().next_back();
        if !before.is_some_and(|&before| core::ptr::eq(before, chunk)) {
            self.broken[self.len] = Some(chunk);
        }
    }

    /// Adds a range with `kind` pages of the kind, joining it to the last range if they touch.
    fn push(&mut self, range: Range, kind: usize) {
        self.pages += kind;
        if let Some(last) = (self.len.checked_sub(1)).filter(|_| !self.hooked) {
            let before = self.ranges[last];
            let ends = |r: Range| r.addr + r.pages * PAGE;
            if before.addr == ends(range) || ends(before) == range.addr {
                self.ranges[last] = Range {
                    addr: before.addr.min(range.addr),
                    pages: before.pages + range.pages,
                };
                self.kinds[last] += kind;
                return;
            }
        }
        if let Some(slot) = self.ranges.get_mut(self.len) {
            *slot = range;
            self.kinds[self.len] = kind;
            self.len += 1;
        }
    }

    /// The ranges, each with its number of pages of the kind.
    pub fn ranges(&self) -> impl Iterator<Item = (&Range, usize)> {
        // By reference: the arrays are too large for the stack.
        (self.ranges[..self.len].iter()).zip(self.kinds.iter().copied())
    }
}

impl State {
    /// Puts the next pages to return into the batch, none when the round is over. The pages count
    /// for the cap meanwhile.
    pub fn take_batch(
        &mut self,
        goal: &Goal,
        step: Step,
        spare: Spare,
        round: u32,
        batch: &mut Batch,
    ) {
        (batch.len, batch.pages, batch.hooked) = (0, 0, false);
        batch.broken.fill(None);
        self.choose(goal, step, spare, round, batch);
        let is_dirty = step != Step::MuzzyToClean;
        self.watch
            .set_under_way(if is_dirty { batch.pages } else { 0 });
    }

    /// Chooses as many pages towards the goal as fit into a batch, and marks them allocated.
    #[inline(never)]
    fn choose(&mut self, goal: &Goal, step: Step, spare: Spare, round: u32, batch: &mut Batch) {
        let there = if step == Step::MuzzyToClean {
            self.totals.muzzy
        } else {
            self.totals.dirty
        };
        let excess = there.saturating_sub(goal.limit).min(goal.max);
        if excess == 0 && spare != Spare::NONE {
            return;
        }
        let rest = spare.rest && step == Step::DirtyToClean;
        if rest {
            // A thread that began a chunk has touched it by now, if it ever will.
            self.file_all_begun();
        }
        let is_enough = |batch: &Batch| batch.is_full() || batch.pages >= excess && !rest;
        for segment in Segment::all().rev().chain(self.pool.hooked()) {
            for i in segment.resident(self.pool.heap()).descending() {
                self.choose_from(segment.chunk(i), step, round, excess, batch);
                if is_enough(batch) {
                    return;
                }
            }
        }
        if spare == Spare::PARTLY_USED {
            return;
        }
        // Taking pages refiles a chunk, so the chunks are picked before any of them changes.
        let worth_it = |c: &&'static Chunk| {
            let breaks_much_for_little = c.is_whole() && c.used.get() > spare.max_used;
            let has_rest = || rest && with_rest(c, step, round).is_some_and(|all| !all.is_empty());
            !breaks_much_for_little && (!purgeable(c, step, round).is_empty() || has_rest())
        };
        {
            let mut candidates = self.filler.sparsest_first().filter(worth_it);
            (batch.picked.iter_mut()).for_each(|slot| *slot = candidates.next());
        }
        for i in 0..BATCH_RANGES {
            let Some(chunk) = batch.picked[i].filter(|_| !is_enough(batch)) else {
                break;
            };
            self.choose_from(chunk, step, round, excess, batch);
        }
        if batch.len == 0 && excess > 0 {
            // All that is left stays: it must not count as new at every check, nor be asked for at
            // every free.
            match step {
                Step::MuzzyToClean => self.muzzy.settle(there),
                Step::DirtyToMuzzy | Step::DirtyToClean => self.dirty.settle(there),
            }
            if step == Step::DirtyToClean && spare.max_used == u16::MAX {
                self.watch.give_up(there, self.totals.used);
            }
        }
    }

    fn choose_from(
        &mut self,
        chunk: &'static Chunk,
        step: Step,
        round: u32,
        excess: usize,
        batch: &mut Batch,
    ) {
        let hooked = chunk.segment().is_hooked();
        if batch.len == 0 {
            batch.hooked = hooked;
        }
        if batch.hooked != hooked {
            return;
        }
        if chunk.is_vacant() && !hooked && !step.is_lazy() {
            self.choose_whole(chunk, step, round, batch);
            return;
        }
        let breaks = chunk.huge.get() && !chunk.is_vacant() && huge_pages::may_stay_broken();
        let of_kind = purgeable(chunk, step, round);
        let all = with_rest(chunk, step, round);
        for run in all.as_ref().unwrap_or(&of_kind).runs() {
            if batch.is_full() || all.is_none() && batch.pages >= excess {
                return;
            }
            if breaks {
                batch.breaks(chunk);
            }
            let kind = of_kind.count_in(run.start, run.len);
            self.choose_run(chunk, run, kind, batch);
        }
    }

    /// Chooses all that is mapped of a vacant chunk, including pages that were never touched or
    /// already went back.
    /// Only a chunk that is returned whole loses its table of small pages, and a chunk that still
    /// has one gets no huge page when it is touched again, but up to 512 faults.
    fn choose_whole(&mut self, chunk: &'static Chunk, step: Step, round: u32, batch: &mut Batch) {
        let kind = purgeable(chunk, step, round).count_in(0, CHUNK_PAGES);
        if kind > 0 {
            let mapped = BitRun {
                start: 0,
                len: chunk.mapped.get() as usize,
            };
            self.choose_run(chunk, mapped, kind, batch);
        }
    }

    /// Chooses free pages of a chunk, `kind` of which are of the kind that is purged.
    fn choose_run(&mut self, chunk: &'static Chunk, run: BitRun, kind: usize, batch: &mut Batch) {
        // Pages that went back before do not count as taken again.
        let gone = chunk.gone.take();
        self.take(chunk, run.start, run.len);
        chunk.gone.set(gone);
        if batch.guessed > 0 {
            self.meter.lose(batch.guessed, chunk, kind);
        }
        let (addr, pages) = (chunk.addr() + run.start * PAGE, run.len);
        batch.push(Range { addr, pages }, kind);
    }
}

/// The free pages of the chunk that the step purges, as limited by [`at_hand`].
fn purgeable(chunk: &Chunk, step: Step, round: u32) -> Bits512 {
    let kind = if step == Step::MuzzyToClean {
        &chunk.muzzy
    } else {
        &chunk.dirty
    };
    at_hand(chunk, kind.and(&chunk.free), round)
}

/// For a chunk whose huge page the step would break: all free pages, as limited by [`at_hand`],
/// except muzzy ones, which the system may take already. A huge page is resident as a whole,
/// including pages that were never allocated. A chunk that is mapped in part has none.
fn with_rest(chunk: &Chunk, step: Step, round: u32) -> Option<Bits512> {
    let is_mapped = chunk.mapped.get() as usize == CHUNK_PAGES;
    let is_backed = is_mapped && chunk.is_whole() && !chunk.is_vacant();
    let is_backed = is_backed && !chunk.segment().is_hooked();
    (is_backed && step == Step::DirtyToClean)
        .then(|| at_hand(chunk, chunk.free.without(&chunk.muzzy), round))
}

/// The pages rounded inwards to whole pages of the system; none when the system refused to take
/// pages of this chunk in this round.
fn at_hand(chunk: &Chunk, pages: Bits512, round: u32) -> Bits512 {
    if chunk.refused.get() == round {
        return Bits512::empty();
    }
    pages.keep_groups(mem::os_page() / PAGE);
    pages
}
