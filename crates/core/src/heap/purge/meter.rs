//! Learns what it costs a program that memory goes back, and how much of it therefore may.
//!
//! Memory that goes back and stays away costs next to nothing: the system frees it now instead of
//! when the process ends. Memory that is taken again within a second was returned in vain, and
//! costs a page fault for each page or huge page. So the meter counts the pages that are returned
//! and those of them that are taken again so soon. Their share says what the next purge will cost,
//! and a purge may be as large as a hundredth of the time that has passed pays for. A heap in which
//! nothing was ever taken again soon may return all that it has. That is a guess, and if it was
//! wrong, the heap returns nothing until it is paid for.
//!
//! The meter decides about purges that nobody asked for: along the decay curve, of a surplus, and
//! what is left when threads have ended. Those that a call or an option demands take place in any
//! case, and those that keep a heap from outgrowing its peak. All of them are counted.

use crate::heap::purge::decay::{Decay, Due};
use crate::space::chunk::{CHUNK_PAGES, Chunk};
use crate::sys::time;

/// Memory that is taken again within this many milliseconds was returned in vain.
const SOON_MS: u64 = 1000;
/// What a page then cost, in half microseconds: returned as a small page and mapped by a fault or
/// with its neighbours, or as part of a huge page.
const SMALL_PAGE_COST: u64 = 6;
const HUGE_PAGE_COST: u64 = 1;
/// What may be spent in each millisecond: a hundredth of it.
const CREDIT_PER_MS: i64 = 20;
/// For how many milliseconds credit is saved up, and how many it takes to pay any debt.
const SAVED_MS_MAX: i64 = 10_000;
const DEBT_MS_MAX: i64 = 60_000;
/// What was seen this many milliseconds ago counts half.
const HALF_LIFE_MS: u64 = 10_000;

pub struct Meter {
    /// Pages that were returned, those of them that were taken again soon, and the cost of these;
    /// all halve every [`HALF_LIFE_MS`].
    returned: u64,
    retaken_soon: u64,
    cost: u64,
    /// When they were last halved.
    halved: u64,
    /// Pages returned in the current second and in the one before. It is not known yet whether they
    /// are taken again soon.
    open: [usize; 2],
    /// The number of the current second.
    second: u32,
    /// When memory behind used pages was last returned, in milliseconds.
    bared_at: u32,
    /// What more pages may cost; negative is debt.
    credit: i64,
    /// When it was last raised.
    raised: u64,
    /// All pages that were ever taken again soon.
    pub retaken_ever: u64,
}

impl Meter {
    pub const fn new() -> Meter {
        Meter {
            returned: 0,
            retaken_soon: 0,
            cost: 0,
            halved: 0,
            open: [0; 2],
            second: 0,
            bared_at: 0,
            credit: 0,
            raised: 0,
            retaken_ever: 0,
        }
    }

    /// Counts pages of a chunk that are returned.
    #[inline(never)]
    pub fn lose(&mut self, now: u64, chunk: &Chunk, pages: usize) {
        let gone = gone(chunk, now) + pages;
        chunk.gone.set(gone.min(CHUNK_PAGES) as u16);
        chunk.gone_at.set(now as u32);
        self.returned(now, pages);
    }

    /// Called when `pages` pages without memory are taken from a chunk of which some were returned:
    /// counts those that were returned lately.
    #[cold]
    #[inline(never)]
    pub fn retake(&mut self, chunk: &Chunk, pages: usize) {
        if pages == 0 {
            return;
        }
        let now = time::now_ms();
        let gone = gone(chunk, now);
        let pages = pages.min(gone);
        chunk.gone.set((gone - pages) as u16);
        self.retaken(now, pages, chunk.is_whole());
    }

    /// Counts used pages whose memory is returned.
    pub fn lose_behind(&mut self, pages: usize) {
        let now = time::now_ms();
        self.bared_at = now as u32;
        self.returned(now, pages);
    }

    /// Called when used pages may be touched whose memory was returned.
    pub fn retake_behind(&mut self, pages: usize) {
        let now = time::now_ms();
        if is_soon(self.bared_at, now) {
            self.retaken(now, pages, false);
        }
    }

    fn returned(&mut self, now: u64, pages: usize) {
        self.pass(now);
        self.returned += pages as u64;
        self.open[0] += pages;
    }

    /// Counts pages that are taken again soon, each by itself or as part of a huge page.
    fn retaken(&mut self, now: u64, pages: usize, huge: bool) {
        self.pass(now);
        let each = if huge {
            HUGE_PAGE_COST
        } else {
            SMALL_PAGE_COST
        };
        let cost = pages as u64 * each;
        self.retaken_soon += pages as u64;
        self.cost += cost;
        self.retaken_ever += pages as u64;
        self.credit = (self.credit - cost as i64).max(-DEBT_MS_MAX * CREDIT_PER_MS);
    }

    /// How many pages may be returned now that nobody asked for.
    #[inline(never)]
    pub fn allowance(&mut self, now: u64) -> usize {
        self.pass(now);
        if self.cost == 0 {
            return usize::MAX;
        }
        let open = self.open[0] + self.open[1];
        // Of what was returned just now, no cost is known yet. Where nothing else is known, all of
        // it may be taken again.
        let known = self.returned.saturating_sub(open as u64);
        let known = known.max(self.retaken_soon).max(1);
        let credit = self.credit.max(0) as u64;
        let pages = credit.saturating_mul(known) / self.cost;
        (pages as usize).saturating_sub(open)
    }

    /// Pages that have decayed, no more of them than may be returned. What may not is as good as
    /// freed anew, and stays for another decay time.
    #[inline(never)]
    pub fn limit(&mut self, now: u64, decay: &mut Decay, unused: usize) -> Option<Due> {
        let due = decay.due(now, unused)?;
        match decay.time_ms() {
            0 => Some(due),
            _ => due.at_most(self.allowance(now)),
        }
    }

    /// Lets the time pass until `now`.
    #[inline(never)]
    fn pass(&mut self, now: u64) {
        if self.raised == 0 {
            (self.raised, self.halved, self.second) = (now, now, (now / SOON_MS) as u32);
        }
        let passed = now.saturating_sub(self.raised).min(DEBT_MS_MAX as u64) as i64;
        self.raised = self.raised.max(now);
        self.credit = (self.credit + passed * CREDIT_PER_MS).min(SAVED_MS_MAX * CREDIT_PER_MS);
        let second = (now / SOON_MS) as u32;
        match second.saturating_sub(self.second) {
            0 => {}
            1 => self.open = [0, self.open[0]],
            _ => self.open = [0; 2],
        }
        self.second = self.second.max(second);
        let halvings = now.saturating_sub(self.halved) / HALF_LIFE_MS;
        if halvings > 0 {
            self.halved += halvings * HALF_LIFE_MS;
            self.returned >>= halvings.min(63);
            self.retaken_soon >>= halvings.min(63);
            self.cost >>= halvings.min(63);
        }
    }
}

/// One part in this many of the time for which a process has had several threads may be lost to a
/// first guess. The later rounds of a program that works in rounds are not charged for it again.
const GUESS_PART: u64 = 16;

/// Free pages of partly used chunks that a guess may return about which nothing is known. They were
/// filled as parts of huge pages, and are taken again one by one, which costs more. A program that
/// makes and joins threads in rounds takes all of them again.
pub struct Budget(pub usize);

impl Budget {
    /// For a process that has had several threads for so many milliseconds.
    pub fn of(ran_ms: u64) -> Budget {
        const COSTS_PER_MS: u64 = 2000;
        Budget((ran_ms * COSTS_PER_MS / GUESS_PART / SMALL_PAGE_COST) as usize)
    }

    pub fn spend(&mut self, pages: usize) {
        self.0 = self.0.saturating_sub(pages);
    }
}

/// Whether what was returned at the time `at` is taken again soon if it is taken now.
fn is_soon(at: u32, now: u64) -> bool {
    u64::from((now as u32).wrapping_sub(at)) < SOON_MS
}

/// How many pages of a chunk were returned so lately that they are taken again soon.
fn gone(chunk: &Chunk, now: u64) -> usize {
    if is_soon(chunk.gone_at.get(), now) {
        chunk.gone.get() as usize
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    const START: u64 = 5_000;

    /// A program that wants to return memory, and takes a share of it again soon.
    struct Program {
        meter: Meter,
        now: u64,
        /// What it will take: when, and how many pages.
        taken: VecDeque<(u64, usize)>,
        huge: bool,
        cost: u64,
        returned: usize,
    }

    impl Program {
        fn new(huge: bool) -> Program {
            Program {
                meter: Meter::new(),
                now: START,
                taken: VecDeque::new(),
                huge,
                cost: 0,
                returned: 0,
            }
        }

        /// Returns up to `wish` pages, of which `share` percent are taken again after `delay` ms;
        /// the result is how many.
        fn wish(&mut self, wish: usize, share: usize, delay: u64) -> usize {
            let pages = wish.min(self.meter.allowance(self.now));
            self.meter.returned(self.now, pages);
            self.returned += pages;
            self.taken
                .push_back((self.now + delay, pages * share / 100));
            pages
        }

        fn wait(&mut self, ms: u64) {
            for _ in 0..ms {
                self.now += 1;
                while let Some(&(at, pages)) = self.taken.front()
                    && at <= self.now
                {
                    self.taken.pop_front();
                    self.meter.retaken(self.now, pages, self.huge);
                    let each = if self.huge {
                        HUGE_PAGE_COST
                    } else {
                        SMALL_PAGE_COST
                    };
                    self.cost += pages as u64 * each;
                }
            }
        }
    }

    #[test]
    fn who_never_takes_memory_again_soon_returns_all_of_it() {
        let mut program = Program::new(false);
        for _ in 0..100 {
            assert_eq!(program.wish(1 << 20, 0, 0), 1 << 20);
            program.wait(100);
        }
    }

    #[test]
    fn a_wrong_guess_is_paid_for_before_the_next_one() {
        const PAGES: usize = 10_000;
        const MS: u64 = PAGES as u64 * SMALL_PAGE_COST / CREDIT_PER_MS as u64;
        let mut program = Program::new(false);
        program.wish(PAGES, 100, 100);
        program.wait(100);
        assert_eq!(program.meter.allowance(program.now), 0);
        program.wait(MS - 150);
        assert_eq!(program.meter.allowance(program.now), 0);
        program.wait(1_050);
        // As much as a second's credit pays for if all of it is taken again.
        let second = (1000 * CREDIT_PER_MS as u64 / SMALL_PAGE_COST) as usize;
        let allowed = program.meter.allowance(program.now);
        assert!((second / 2..=second * 2).contains(&allowed), "{allowed}");
    }

    #[test]
    fn what_was_once_taken_again_is_forgotten_where_it_no_longer_is() {
        let mut program = Program::new(false);
        program.wish(50_000, 100, 100);
        program.wait(60_000);
        let mut last = 0;
        for _ in 0..20 {
            last = program.wish(1_000_000, 0, 0);
            program.wait(3_000);
        }
        assert_eq!(last, 1_000_000);
    }

    #[test]
    fn a_clock_that_stands_or_jumps_back_does_no_harm() {
        let mut meter = Meter::new();
        meter.returned(START, 100);
        meter.retaken(START - 1_000, 100, false);
        assert_eq!(meter.allowance(START - 2_000), 0);
        assert_eq!(meter.allowance(0), 0);
        assert!(meter.allowance(START + DEBT_MS_MAX as u64) > 0);
        assert!(meter.allowance(u64::MAX) > 0);
    }

    proptest! {
        /// Whoever takes a share of what is returned again soon pays a hundredth of the time for
        /// it, beyond the first guess.
        #[test]
        fn a_hundredth_of_the_time_is_spent(
            share in 1_usize..=100,
            huge: bool,
            steps in prop::collection::vec((1_u64..400, 1_usize..100_000, 1_u64..900), 50..300),
        ) {
            let mut program = Program::new(huge);
            // The first guess takes a second.
            let mut first = 0;
            for &(ms, wish, delay) in &steps {
                if program.now < START + SOON_MS {
                    first += program.wish(wish, share, delay);
                } else {
                    program.wish(wish, share, delay);
                }
                program.wait(ms);
            }
            program.wait(1_000);
            let each = if huge { HUGE_PAGE_COST } else { SMALL_PAGE_COST };
            let guess = first as u64 * each;
            let spent = program.cost.saturating_sub(guess);
            let earned = (program.now - START) * CREDIT_PER_MS as u64;
            // Of each purge, a page's part is rounded.
            prop_assert!(spent <= earned + 100 * each, "{spent} of {earned}");
        }

        /// Whoever takes little again, within what that may cost, returns as much as it wishes once
        /// that is known.
        #[test]
        fn who_takes_little_again_returns_what_it_wishes(
            steps in prop::collection::vec((500_u64..1_500, 1_usize..10_000), 1..100),
        ) {
            let mut program = Program::new(true);
            program.wait(5_000);
            let begun = program.now;
            let wishes: Vec<usize> = steps.iter().map(|&(ms, wish)| {
                let is_known = program.now >= begun + 2 * SOON_MS;
                let got = program.wish(wish, 10, 300);
                program.wait(ms);
                if is_known { wish - got } else { 0 }
            }).collect();
            prop_assert!(wishes.iter().all(|&left| left == 0), "{wishes:?}");
        }
    }
}
