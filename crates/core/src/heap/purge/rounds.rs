//! Returning free pages to the system.
//!
//! `victims` chooses the pages under the lock and marks them allocated for the duration of the
//! system calls, which happen outside the lock; then they are freed again, as clean or muzzy.
//!
//! Any thread purges at its slow events ([`PageHeap::tick`]) or, if there is a background thread,
//! only that one does ([`PageHeap::attend`]); in addition, a thread that frees more than the cap
//! allows purges at once.

use crate::heap::huge::huge_pages;
use crate::heap::purge::advice::{self, Range};
use crate::heap::purge::decay::{Due, WORTH_PAGES};
use crate::heap::purge::hold::Hold;
use crate::heap::purge::meter::Budget;
use crate::heap::purge::victims::{BATCH_RANGES, Batch, Goal, Spare, Step};
use crate::heap::purge::watch::{Alarm, BELL, Plan};
use crate::heap::{Backing, PageHeap, Purged, RETAIN, State};
use crate::space::chunk::CHUNK_PAGES;
use crate::sys::atomic::Ordering;
use crate::sys::flag::Blocking;
use crate::sys::page::PAGE;
use crate::sys::{mappings, time};

/// Pages tried together after a larger range was refused: a multiple of any system's page.
const RETRY_PAGES: usize = 64;

impl PageHeap {
    /// Reads the clock, and returns what is due, unless another thread holds the heap's lock.
    pub(in crate::heap) fn tick(&self) {
        if self.ever_freed.load(Ordering::Relaxed) {
            self.return_due();
        }
    }

    #[cold]
    #[inline(never)]
    fn return_due(&self) {
        let now = time::now_ms();
        if let Some(mut s) = self.state.try_lock() {
            let due = s.due(now);
            let surplus = s.surplus(now);
            let kept = s.kept_due(now);
            drop(s);
            self.purge(&due);
            if let Some(segment) = kept {
                self.unmake_kept(segment);
            }
            if let Some(goal) = surplus {
                self.purge_unless_busy(goal, Step::DirtyToClean, Spare::NEARLY_FULL);
            }
        }
    }

    /// Returns what is due, on behalf of the other threads. Returns the time of the next check, or
    /// `None` when there is nothing to wait for. The bell rings when that changes, so the caller
    /// must have readied the bell.
    pub fn attend(&self) -> Option<u64> {
        self.purge_due_at(time::now_ms_exact());
        let near = |s: &mut State| s.watch.near(s.totals.dirty, s.totals.used);
        let is_near = near(&mut self.state.lock_seldom()).is_some();
        if is_near {
            self.make_room(near);
        }
        let mut s = self.state.lock_seldom();
        let totals = s.totals;
        let dues = [
            s.dirty.next_due(totals.dirty),
            s.muzzy.next_due(totals.muzzy),
        ];
        let dues = dues.into_iter().chain([s.kept_next_due()]);
        let next = dues.flatten().min();
        let plan = match next {
            Some(_) => Plan::Timed,
            None if s.dirty.time_ms() > 0 => Plan::Nothing,
            None => Plan::Never,
        };
        s.watch.sleep(totals.dirty, totals.used, plan);
        next
    }

    /// Answers an alarm that freeing pages raised.
    #[cold]
    pub(in crate::heap) fn answer(&self, alarm: Alarm) {
        if alarm.rouse {
            BELL.ring();
        }
        if alarm.is_over {
            self.make_room(|s| s.watch.over(s.totals.dirty, s.totals.used));
        }
    }

    /// Purges down to `limit`, because of the cap. `limit` is evaluated once no other thread
    /// purges, since that thread may have done this one's part too.
    fn make_room(&self, limit: impl FnOnce(&mut State) -> Option<usize>) {
        // Waits for a thread that already purges, whose pages count until they are gone: otherwise
        // freeing would outrun the cap. Not with hooks: a thread that resets an arena frees pages
        // while it holds the flag.
        let wait = if self.hooked.is_on() {
            Blocking::No
        } else {
            Blocking::Yes
        };
        let Some(mut hold) = self.hold(wait) else {
            return;
        };
        let limit = limit(&mut self.state.lock_seldom());
        if let Some(limit) = limit {
            // The cap applies to nearly full chunks too, and what it is about is memory in use.
            self.purge_round(
                &mut hold,
                Goal::down_to(limit),
                Step::DirtyToClean,
                Spare::REST,
            );
        }
    }

    /// Purges whole chunks towards `limit`, because the heap grows past them.
    #[cold]
    pub(in crate::heap) fn shed(&self, limit: usize) {
        self.purge_unless_busy(Goal::down_to(limit), Step::DirtyToClean, Spare::PARTLY_USED);
    }

    /// Makes a round, unless another thread returns memory, which does this thread's part too.
    #[inline(never)]
    fn purge_unless_busy(&self, goal: Goal, step: Step, spare: Spare) {
        if let Some(mut hold) = self.hold(Blocking::No) {
            self.purge_round(&mut hold, goal, step, spare);
        }
    }

    /// Reads the clock, and returns what is due.
    pub fn purge_due(&self) {
        self.purge_due_at(time::now_ms());
    }

    fn purge_due_at(&self, now: u64) {
        let mut s = self.state.lock_seldom();
        let due = s.due(now);
        let mut kept = s.kept_due(now);
        drop(s);
        self.purge(&due);
        while let Some(segment) = kept {
            self.unmake_kept(segment);
            kept = self.state.lock_seldom().kept_due(now);
        }
    }

    #[inline(never)]
    fn purge(&self, due: &AllDue) {
        let first = if due.lazily {
            Step::DirtyToMuzzy
        } else {
            Step::DirtyToClean
        };
        for (pages, step) in [(&due.dirty, first), (&due.muzzy, Step::MuzzyToClean)] {
            let &Some(Due { limit, pages, idle }) = pages else {
                continue;
            };
            let spare = if idle {
                Spare::IDLE
            } else {
                Spare::NEARLY_FULL
            };
            self.purge_unless_busy(Goal::guess(due.now, limit, pages), step, spare);
        }
    }

    /// Returns all free memory now, including the few free pages of nearly full chunks; the result
    /// is whether there was any.
    pub fn purge_all(&self) -> bool {
        self.hold(Blocking::Yes)
            .is_some_and(|mut hold| self.purge_held(&mut hold))
    }

    /// Whether `behind` used pages may be returned unasked, because the heap is being torn down.
    /// Then `free` free ones may, too.
    pub fn may_lose(&self, now: u64, behind: usize, free: usize) -> bool {
        let mut s = self.state.lock_seldom();
        let may = s.dirty.time_ms() > 0 && s.meter.allowance(now) >= behind;
        if may {
            s.surplus.begin(free);
        }
        may
    }

    /// Returns all free memory that the meter allows, because nobody may do so later. Where nothing
    /// was ever taken again the meter allows all, and the budget limits what that may cost.
    pub fn purge_rest(&self, budget: &mut Budget) {
        let now = time::now_ms();
        let allowed = self.state.lock_seldom().meter.allowance(now);
        if allowed < WORTH_PAGES {
            return;
        }
        let Some(mut hold) = self.hold(Blocking::Yes) else {
            return;
        };
        if allowed < usize::MAX {
            self.purge_steps(&mut hold, Goal::guess(now, 0, allowed), Spare::NEARLY_FULL);
            return;
        }
        // Whole chunks cost at most what they cost when they were first filled.
        self.purge_steps(&mut hold, Goal::guess(now, 0, allowed), Spare::PARTLY_USED);
        let there = self.dirty();
        let spare = if budget.0 < there {
            Spare::NEARLY_FULL
        } else {
            Spare::NONE
        };
        self.purge_steps(&mut hold, Goal::guess(now, 0, budget.0), spare);
        budget.spend(there.saturating_sub(self.dirty()));
    }

    fn purge_steps(&self, hold: &mut Hold, goal: Goal, spare: Spare) {
        if goal.max < WORTH_PAGES {
            return;
        }
        for step in [Step::DirtyToClean, Step::MuzzyToClean] {
            self.purge_round(hold, goal, step, spare);
        }
    }

    fn dirty(&self) -> usize {
        self.state.lock_seldom().totals.dirty
    }

    /// Like [`PageHeap::purge_all`], for a caller that already holds the right to return memory.
    pub(in crate::heap) fn purge_held(&self, hold: &mut Hold) -> bool {
        let all = Goal::down_to(0);
        let kept = self.give_kept_back();
        let dirty = self.purge_round(hold, all, Step::DirtyToClean, Spare::NONE);
        let muzzy = self.purge_round(hold, all, Step::MuzzyToClean, Spare::NONE);
        kept | dirty | muzzy
    }

    fn purge_round(&self, hold: &mut Hold, mut goal: Goal, step: Step, spare: Spare) -> bool {
        let batch = self.batches.of(hold);
        let round = self.rounds.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.rounds.store(round, Ordering::Relaxed);
        let mut any = self.hooked.is_on()
            && step != Step::DirtyToMuzzy
            && self.give_back_vacant(goal.limit, step == Step::MuzzyToClean, round);
        if any {
            self.state.lock_seldom().purged(step).sweeps += 1;
        }
        batch.guessed = if step.is_lazy() { 0 } else { goal.guessed };
        let mut first = !any;
        loop {
            let mut s = self.state.lock_seldom();
            s.take_batch(&goal, step, spare, round, batch);
            goal.max -= batch.pages.min(goal.max);
            if batch.len == 0 {
                break;
            }
            s.purged(step).sweeps += first as u64;
            drop(s);
            first = false;
            any |= if batch.hooked {
                self.purge_hooked(batch, step, round)
            } else {
                self.advise(batch, step, round)
            };
            if mappings::are_any() {
                self.rejoin_batch(batch);
            }
        }
        if any && (!RETAIN.load(Ordering::Relaxed) || self.is_fenced()) {
            self.state.lock_seldom().pool.decommit_vacant();
        }
        any
    }

    /// Rejoins the chunks of a batch that were returned with their neighbours.
    #[cold]
    fn rejoin_batch(&self, batch: &Batch) {
        let mut s = self.state.lock_seldom();
        for (range, _) in batch.ranges() {
            s.rejoin(range.addr, range.pages * PAGE);
        }
    }

    /// Makes the system calls for a batch, then frees its pages; returns whether any went back.
    #[inline(never)]
    fn advise(&self, batch: &Batch, step: Step, round: u32) -> bool {
        let mut backings = [None; BATCH_RANGES];
        let ranges = &batch.ranges[..batch.len];
        let calls = if self.is_fenced() {
            self.close_ranges(ranges, step.discard(), &mut backings)
        } else {
            advice::take(ranges, step.discard(), &mut backings)
        };
        // Pages of these chunks are marked allocated, so none of them becomes vacant meanwhile.
        let broken = || batch.broken.iter().take(batch.len + 1).flatten();
        broken().for_each(|chunk| huge_pages::keep_broken(chunk));
        let mut s = self.state.lock_seldom();
        broken().for_each(|chunk| huge_pages::kept_broken(chunk));
        s.purged(step).advices += calls as u64;
        for ((range, kind), &backing) in batch.ranges().zip(&backings) {
            if backing.is_some() {
                s.watch.returned(kind);
                s.give_purged(range, kind, backing, step, round);
            }
        }
        drop(s);
        // A single locked page makes the system refuse the whole range: try again in pieces.
        let mut any = backings[..batch.len].iter().any(Option::is_some);
        let refused = batch.ranges().zip(&backings);
        for ((range, kind), _) in refused.filter(|r| r.1.is_none()) {
            let mut left = kind;
            for piece in pieces(*range) {
                let backing = advice::take_one(&piece, step.discard());
                any |= backing.is_some();
                let mut s = self.state.lock_seldom();
                s.purged(step).advices += 1;
                // Some of the pages may be of another kind: the range is counted as a whole.
                let part = left.min(piece.pages);
                left -= part;
                s.watch.returned(part);
                s.give_purged(&piece, piece.pages, backing, step, round);
            }
        }
        any
    }
}

impl PageHeap {
    /// Like [`PageHeap::advise`], through the hooks that provided the pages.
    #[cold]
    fn purge_hooked(&self, batch: &Batch, step: Step, round: u32) -> bool {
        let hooks = self.hooked.hooks();
        let mut any = false;
        for (range, kind) in batch.ranges() {
            let (at, len) = (range.addr, range.pages * PAGE);
            let place = self.extent_at(at);
            let backing = if step.is_lazy() && hooks.purge_lazy(place, at, len) {
                Some(Backing::Muzzy)
            } else if hooks.purge_forced(place, at, len) {
                Some(Backing::Clean)
            } else {
                None
            };
            any |= backing.is_some();
            let mut s = self.state.lock_seldom();
            s.purged(step).advices += 1;
            s.watch.returned(kind);
            s.give_purged(range, kind, backing, step, round);
        }
        any
    }
}

/// Cuts a range that was refused into pieces.
fn pieces(range: Range) -> impl Iterator<Item = Range> {
    (0..range.pages).step_by(RETRY_PAGES).map(move |at| Range {
        addr: range.addr + at * PAGE,
        pages: RETRY_PAGES.min(range.pages - at),
    })
}

/// The pages that are due now, of each kind.
struct AllDue {
    now: u64,
    dirty: Option<Due>,
    muzzy: Option<Due>,
    /// Whether dirty pages become muzzy first.
    lazily: bool,
}

impl State {
    /// Frees chosen pages, `kind` of which are of the kind that is purged. Chunks with pages that
    /// the system refused to take are left alone for the rest of the round.
    fn give_purged(
        &mut self,
        range: &Range,
        kind: usize,
        backing: Option<Backing>,
        step: Step,
        round: u32,
    ) {
        let before = if step == Step::MuzzyToClean {
            Backing::Muzzy
        } else {
            Backing::Dirty
        };
        self.purged(step).pages += backing.map_or(0, |_| kind as u64);
        self.span(range.addr, range.pages, |s, chunk, start, len| {
            match backing {
                None => chunk.refused.set(round),
                Some(_) => chunk.broken.set(len < CHUNK_PAGES),
            }
            s.give(chunk, start, len, backing.unwrap_or(before));
        });
    }

    /// The counts for the kind of page that the step purges.
    fn purged(&mut self, step: Step) -> &mut Purged {
        match step {
            Step::MuzzyToClean => &mut self.totals.muzzy_purged,
            Step::DirtyToMuzzy | Step::DirtyToClean => &mut self.totals.dirty_purged,
        }
    }

    /// What to purge of a heap that is being torn down.
    fn surplus(&mut self, now: u64) -> Option<Goal> {
        let goal = (self.surplus).look(now, self.totals.used, self.totals.dirty)?;
        self.allowed(goal)
    }

    /// The part of a goal that the meter allows, if memory decays at all.
    #[cold]
    #[inline(never)]
    fn allowed(&mut self, goal: Goal) -> Option<Goal> {
        let max = if self.dirty.time_ms() > 0 {
            self.meter.allowance(goal.guessed).min(goal.max)
        } else {
            0
        };
        (max >= WORTH_PAGES).then_some(Goal { max, ..goal })
    }

    fn due(&mut self, now: u64) -> AllDue {
        let totals = self.totals;
        AllDue {
            now,
            dirty: self.meter.limit(now, &mut self.dirty, totals.dirty),
            muzzy: self.meter.limit(now, &mut self.muzzy, totals.muzzy),
            lazily: self.muzzy.time_ms() != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Cap;
    use crate::heap::huge::huge_pages::tests::{chunk_of, grown};
    use crate::heap::set::heaps;
    use crate::space::chunk::Chunk;
    use crate::sys::atomic::AtomicBool;
    use crate::sys::mem;
    use crate::sys::mem::tests::resident;
    use crate::testing::alone;
    use std::thread;
    use std::time::Duration;

    const PART_PAGES: usize = CHUNK_PAGES / 8;

    /// Bytes of the chunk that are in memory.
    fn resident_of(chunk: &Chunk) -> usize {
        resident(chunk.addr(), CHUNK_PAGES * PAGE) * mem::os_page()
    }

    /// A run that begins a chunk, which now has a huge page; `None` where the system gives none.
    fn begun(heap: &PageHeap) -> Option<(usize, &'static Chunk)> {
        let run = heap.alloc(PART_PAGES, PAGE).expect("vacant").addr;
        // SAFETY: the test holds the run.
        unsafe { *(run as *mut u8) = 1 };
        let chunk = chunk_of(run);
        let is_huge = resident_of(chunk) == CHUNK_PAGES * PAGE;
        if !is_huge {
            crate::testing::skipped("the system gave no huge page at this moment");
            heap.free(run, PART_PAGES);
        }
        is_huge.then_some((run, chunk))
    }

    #[test]
    fn of_a_huge_page_that_breaks_what_was_never_asked_for_goes_too() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let Some((first, chunk)) = begun(heap) else {
            return;
        };
        let second = heap.alloc(PART_PAGES, PAGE).expect("vacant").addr;
        assert!(core::ptr::eq(chunk, chunk_of(second)));
        heap.free(first, PART_PAGES);
        let before = heap.totals().dirty_purged.pages;
        let mut hold = heap.hold(Blocking::Yes).expect("no hooks");
        heap.purge_round(
            &mut hold,
            Goal::down_to(0),
            Step::DirtyToClean,
            Spare::NEARLY_FULL,
        );
        drop(hold);
        assert_eq!(resident_of(chunk), PART_PAGES * PAGE, "what is in use");
        let purged = heap.totals().dirty_purged.pages - before;
        assert_eq!(purged, PART_PAGES as u64, "what was dirty");
        heap.free(second, PART_PAGES);
        heap.purge_all();
    }

    #[test]
    fn who_is_idle_gives_back_what_was_never_asked_for_and_who_is_not_keeps_it() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let freed = heap.alloc(2 * CHUNK_PAGES, PAGE).expect("vacant").addr;
        let Some((run, chunk)) = begun(heap) else {
            return heap.free(freed, 2 * CHUNK_PAGES);
        };
        let purge = |limit, spare| {
            let mut hold = heap.hold(Blocking::Yes).expect("no hooks");
            heap.purge_round(&mut hold, Goal::down_to(limit), Step::DirtyToClean, spare);
        };
        heap.free(freed, 2 * CHUNK_PAGES);
        purge(CHUNK_PAGES, Spare::NEARLY_FULL);
        assert_eq!(resident_of(chunk), CHUNK_PAGES * PAGE);
        purge(0, Spare::IDLE);
        assert_eq!(resident_of(chunk), PART_PAGES * PAGE);
        assert_eq!(heap.totals().dirty, 0);
        heap.free(run, PART_PAGES);
        heap.purge_all();
    }

    /// Otherwise a page that is due would take along everything that a busy program frees while the
    /// system call runs.
    #[test]
    fn what_is_freed_after_a_round_was_found_due_stays() {
        crate::testing::own_process!();
        let _alone = alone();
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        heap.set_decay(1, -1);
        let runs = [(); 3].map(|()| heap.alloc(64, PAGE).expect("there is memory").addr);
        heap.free(runs[0], 64);
        let now = time::now_ms();
        let all_due = |ms| heap.state.lock_seldom().due(now + ms);
        assert!(all_due(0).dirty.is_none(), "the first epoch begins");
        let due = [10, 1_000].map(all_due);
        let found = due[1].dirty.map(|due| (due.limit, due.pages));
        assert_eq!(found, Some((0, 64)));
        heap.free(runs[2], 64);
        due.into_iter().for_each(|due| heap.purge(&due));
        assert_eq!(heap.totals().dirty, 64, "as many as came since");
        heap.free(runs[1], 64);
        heap.purge_all();
        assert_eq!(heap.totals().dirty, 0);
    }

    /// A program that makes and joins threads in rounds takes all of it again.
    #[test]
    fn a_first_guess_costs_no_more_than_a_part_of_the_time_that_the_process_ran() {
        crate::testing::own_process!();
        let _alone = alone();
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let runs = [(); 4].map(|()| heap.alloc(PART_PAGES, PAGE).expect("memory").addr);
        let whole = heap.alloc(2 * CHUNK_PAGES, PAGE).expect("memory").addr;
        heap.free(whole, 2 * CHUNK_PAGES);
        (runs[1..].iter()).for_each(|&run| heap.free(run, PART_PAGES));
        let rest = |ran_ms: u64| {
            heap.purge_rest(&mut Budget::of(ran_ms));
            heap.totals().dirty
        };
        assert_eq!(rest(1), 3 * PART_PAGES, "whole chunks go in any case");
        assert_eq!(rest(1_000), 0);
        heap.free(runs[0], PART_PAGES);
        heap.purge_all();
    }

    /// Otherwise freeing would outrun the cap for as long as the system call runs.
    #[test]
    fn who_frees_more_than_the_cap_waits_for_what_is_on_its_way_back() {
        crate::testing::own_process!();
        let _alone = alone();
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        heap.set_decay(-1, -1);
        heap.set_cap(Cap {
            pages: 100,
            share: None,
        });
        let runs = [(); 2].map(|()| heap.alloc(64, PAGE).expect("there is memory").addr);
        heap.free(runs[0], 64);
        let mut hold = heap.hold(Blocking::Yes).expect("no hooks");
        let batch = heap.batches.of(&mut hold);
        let take = |limit, batch: &mut Batch| {
            let (goal, step) = (Goal::down_to(limit), Step::DirtyToClean);
            (heap.state.lock_seldom()).take_batch(&goal, step, Spare::REST, 1, batch);
        };
        take(0, batch);
        assert_eq!((batch.pages, heap.totals().dirty), (64, 0));
        let is_gone = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                heap.free(runs[1], 64);
                assert!(is_gone.load(Ordering::Acquire), "128 pages are there");
            });
            while heap.totals().dirty == 0 {
                thread::yield_now();
            }
            // Gives a thread that does not wait the time to go on.
            thread::sleep(Duration::from_millis(20));
            is_gone.store(true, Ordering::Release);
            let batch = heap.batches.of(&mut hold);
            assert!(heap.advise(batch, Step::DirtyToClean, 1));
            take(64, batch);
            assert_eq!(batch.len, 0);
            drop(hold);
        });
        assert_eq!(heap.totals().dirty, 64, "as many as may stay");
        heap.set_cap(Cap::NONE);
        heap.purge_all();
    }
}
