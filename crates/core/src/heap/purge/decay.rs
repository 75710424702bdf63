//! When free pages go back: a smooth curve over time.
//!
//! Of the pages that became free, the share that may stay falls from one to zero along a smoothstep
//! over the decay time. So memory is returned gradually, and what a program is about to use again
//! is mostly still there. Time is divided into 200 epochs. For each epoch the number of pages that
//! became unused in it is recorded; the sum of these numbers, weighted by the curve, is how many
//! pages may stay. This is jemalloc's scheme (its `decay.c`; the curve is Perlin's smootherstep).
//! Pages that are due wait until they are worth the calls ([`Decay::due`]).
//!
//! The clock counts milliseconds, and an epoch is a 200th of the decay time. Epochs are therefore
//! kept in 200ths of a millisecond ([`Ticks`]): in that unit the length of an epoch is the decay
//! time, a whole number, and 200 epochs last exactly as long as was asked for.

/// Epochs in a decay time.
const EPOCHS: usize = 200;
/// How many pages are worth a wake-up of the background thread and the system calls, in pages and
/// as a fraction of what may stay. An idle process wakes up some twenty times until it has returned
/// everything, and no huge page breaks for a single page that has just become due.
pub const WORTH_PAGES: usize = 256;
const WORTH_PART: usize = 16;

/// How many due pages are worth returning if `stay` pages may stay.
fn worth(stay: usize) -> usize {
    WORTH_PAGES.max(stay / WORTH_PART)
}
/// The most epochs between two checks, so that pages freed in between age from about the right
/// time.
const CHECK_EPOCHS_MAX: usize = EPOCHS / 2;
/// A time in 200ths of a millisecond.
type Ticks = u64;

fn ticks(ms: u64) -> Ticks {
    ms * EPOCHS as u64
}

/// Weights are fixed-point numbers with this many fractional bits.
const FRACTION_BITS: u32 = 24;

/// 6x⁵ − 15x⁴ + 10x³ at x = i/200, up to the middle.
static CURVE: [u32; EPOCHS / 2 + 1] = {
    let mut t = [0; EPOCHS / 2 + 1];
    let mut i = 0;
    while i < t.len() {
        let (x, n) = (i as u128, EPOCHS as u128);
        let y = 6 * x * x * x * x * x + 10 * x * x * x * n * n - 15 * x * x * x * x * n;
        t[i] = ((y << FRACTION_BITS) / (n * n * n * n * n)) as u32;
        i += 1;
    }
    t
};

/// The weight of pages that became free 200 − `i` epochs ago. The curve is symmetric.
fn weight(i: usize) -> u32 {
    match CURVE.get(i) {
        Some(&low) => low,
        None => (1 << FRACTION_BITS) - CURVE.get(EPOCHS - i).copied().unwrap_or(0),
    }
}

/// The pages that should be returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// How many pages may stay.
    pub limit: usize,
    /// How many pages exceed that. Pages that are freed while these are being returned are not due.
    pub pages: usize,
    /// Whether nothing was freed for a whole decay time.
    pub idle: bool,
}

impl Due {
    /// No more of them than `pages`; `None` if that is too little to be worth the calls.
    pub fn at_most(self, pages: usize) -> Option<Due> {
        let is_worth_it = pages >= self.pages.min(WORTH_PAGES);
        is_worth_it.then_some(Due {
            pages: self.pages.min(pages),
            ..self
        })
    }
}

/// The decay of one kind of page.
#[repr(C)]
pub struct Decay {
    /// Milliseconds after which a free page is returned: 0 at once, negative never.
    time_ms: i64,
    /// When the running epoch began; 0 before the first one, when the backlog is all zeros.
    epoch_start: Ticks,
    /// Unused pages at the end of the last epoch, after purging.
    settled: usize,
    /// Pages that became unused in each of the last epochs, newest last.
    backlog: [u32; EPOCHS],
}

impl Decay {
    pub const fn new(time_ms: i64) -> Self {
        Decay {
            time_ms,
            epoch_start: 0,
            backlog: [0; EPOCHS],
            settled: 0,
        }
    }

    pub fn time_ms(&self) -> i64 {
        self.time_ms
    }

    /// Sets the decay time; pages that are unused now start to decay anew. `now` may be 0 if there
    /// are none.
    // Called twice at the start of every process, for dirty and for muzzy pages.
    #[inline(never)]
    pub fn set_time(&mut self, time_ms: i64, now: u64, unused: usize) {
        debug_assert!(now > 0 || unused == 0);
        if now == 0 && (self.time_ms, self.epoch_start, self.settled) == (time_ms, 0, 0) {
            // Nothing changes, so nothing is written.
            return;
        }
        // A backlog that was never written need not be cleared: in most processes this is the only
        // call.
        if self.epoch_start > 0 {
            self.backlog.fill(0);
        }
        self.time_ms = time_ms;
        self.epoch_start = ticks(now);
        self.settled = unused;
        if unused > 0 {
            self.backlog[EPOCHS - 1] = unused.min(u32::MAX as usize) as u32;
        }
    }

    /// The length of an epoch, if pages stay for a time.
    fn epoch(&self) -> Ticks {
        self.time_ms as Ticks
    }

    /// Advances to the time `now`, at which `unused` pages are unused. Returns how many may stay,
    /// or `None` if the running epoch is not over or pages stay for ever.
    pub fn advance(&mut self, now: u64, unused: usize) -> Option<usize> {
        match self.time_ms {
            ..0 => return None,
            0 => return Some(0),
            _ => {}
        }
        if self.epoch_start == 0 {
            self.epoch_start = ticks(now);
        }
        let passed = ticks(now).saturating_sub(self.epoch_start) / self.epoch();
        if passed == 0 {
            return None;
        }
        self.epoch_start += passed * self.epoch();
        let passed = (passed as usize).min(EPOCHS);
        self.backlog.copy_within(passed.., 0);
        self.backlog[EPOCHS - passed..].fill(0);
        let fresh = unused.saturating_sub(self.settled).min(u32::MAX as usize);
        self.backlog[EPOCHS - 1] = fresh as u32;
        let limit = self.limit();
        self.settled = unused.min(limit);
        Some(limit)
    }

    /// How many of `unused` pages should be returned now; `None` if none, or so few that they wait
    /// for more.
    pub fn due(&mut self, now: u64, unused: usize) -> Option<Due> {
        let limit = self.advance(now, unused)?;
        let pages = unused.saturating_sub(limit);
        if pages == 0 {
            return None;
        }
        let idle = self.time_ms > 0 && self.idle_after() == 0;
        let is_worth_it = if limit > 0 {
            pages >= worth(limit)
        } else {
            // The last few pages wait until nothing was freed for the whole decay time, some epochs
            // after none may stay.
            idle || self.time_ms == 0 || pages > 2 * WORTH_PAGES
        };
        if !is_worth_it {
            // The pages must not count as new next time.
            self.settle(unused);
            return None;
        }
        Some(Due { limit, pages, idle })
    }

    /// The epochs until nothing will have been freed for the whole decay time, if no page is.
    fn idle_after(&self) -> usize {
        let last = self.backlog.iter().rposition(|&pages| pages > 0);
        last.map_or(0, |last| last + 1)
    }

    fn limit(&self) -> usize {
        self.limit_after(0)
    }

    /// How many pages may stay after `epochs` more epochs.
    fn limit_after(&self, epochs: usize) -> usize {
        let sum: u64 = (self.backlog[epochs..].iter().zip(1..))
            .map(|(&n, i)| n as u64 * weight(i) as u64)
            .sum();
        (sum >> FRACTION_BITS) as usize
    }

    /// Records that the remaining unused pages cannot be returned, so that they do not count as
    /// new.
    pub fn settle(&mut self, unused: usize) {
        self.settled = unused;
    }

    /// When the next pages become due, if no other page becomes unused; `None` if nothing will be
    /// due.
    pub fn next_due(&self, unused: usize) -> Option<u64> {
        if self.time_ms <= 0 || unused == 0 {
            return None;
        }
        let at = |epochs| {
            let end = self.epoch_start + epochs as Ticks * self.epoch();
            end.div_ceil(EPOCHS as Ticks)
        };
        if unused > self.settled {
            // The new pages enter the backlog when the epoch is over.
            return Some(at(1));
        }
        let stay = self.limit().min(unused);
        if stay == 0 {
            let idle_after = self.idle_after();
            return (idle_after > 0).then(|| at(idle_after));
        }
        let worth = stay.saturating_sub(worth(stay));
        let (mut min, mut max) = (1, CHECK_EPOCHS_MAX);
        while min < max {
            let middle = (min + max) / 2;
            if self.limit_after(middle) <= worth {
                max = middle;
            } else {
                min = middle + 1;
            }
        }
        Some(at(min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_rises_from_zero_to_one_and_is_symmetric() {
        assert_eq!(weight(0), 0);
        assert_eq!(weight(EPOCHS), 1 << FRACTION_BITS);
        assert!((0..EPOCHS).all(|i| weight(i) <= weight(i + 1)));
        for i in 0..=EPOCHS {
            let sum = weight(i) + weight(EPOCHS - i);
            assert!(sum.abs_diff(1 << FRACTION_BITS) <= 2, "at {i}: {sum}");
        }
    }

    #[test]
    fn what_is_unused_at_once_is_gone_after_the_decay_time_and_not_much_earlier() {
        let mut d = Decay::new(10_000);
        assert_eq!(d.advance(1_000, 0), None);
        let mut allowed = vec![];
        let mut unused = 1000;
        for now in (1_050..12_000).step_by(50) {
            if let Some(limit) = d.advance(now, unused) {
                unused = unused.min(limit);
            }
            allowed.push((now - 1_000, unused));
        }
        let at = |ms| allowed.iter().find(|a| a.0 >= ms).unwrap().1;
        assert!(at(1_000) > 980, "{}", at(1_000));
        assert!((400..600).contains(&at(5_000)), "{}", at(5_000));
        assert_eq!(at(10_100), 0);
    }

    /// Checks only when a check is due, starting when `pages` pages become unused; returns the
    /// times of the checks, in milliseconds from then.
    fn checks(
        decay: &mut Decay,
        pages: usize,
        mut purge: impl FnMut(usize, usize) -> usize,
    ) -> Vec<u64> {
        const START: u64 = 1_000;
        decay.advance(START, 0);
        let (mut now, mut unused, mut at) = (START, pages, vec![]);
        while let Some(next) = decay.next_due(unused) {
            assert!(next > now, "{next} after {now}");
            now = next;
            at.push(now - START);
            assert!(at.len() < 1000, "checks without end: {at:?}");
            if let Some(limit) = decay.advance(now, unused) {
                unused = purge(unused, limit);
                if unused > limit {
                    decay.settle(unused);
                }
            }
        }
        at
    }

    #[test]
    fn checks_at_the_told_times_return_all_in_few_steps_and_then_end() {
        for (pages, max) in [(1, 4), (200, 4), (10_000, 50), (1 << 20, 120)] {
            let mut left = pages;
            let at = checks(&mut Decay::new(10_000), pages, |unused, limit| {
                left = unused.min(limit);
                left
            });
            assert_eq!(left, 0, "{pages} pages");
            assert!(at.len() <= max, "{pages} pages: {at:?}");
            assert!(at.last() <= Some(&10_100), "{pages} pages: {at:?}");
        }
    }

    #[test]
    fn pages_that_cannot_be_returned_are_not_checked_for_ever() {
        let mut decay = Decay::new(1_000);
        let at = checks(&mut decay, 5_000, |unused, limit| {
            unused.min(limit.max(300))
        });
        assert!(at.last() <= Some(&1_010), "{at:?}");
        assert_eq!(decay.next_due(300), None);
        assert!(decay.next_due(301).is_some(), "one more is new");
    }

    #[test]
    fn where_pages_stay_for_ever_or_go_at_once_there_is_nothing_to_check() {
        assert_eq!(checks(&mut Decay::new(-1), 1000, |u, _| u), [0u64; 0]);
        assert_eq!(checks(&mut Decay::new(0), 1000, |u, _| u), [0u64; 0]);
        assert_eq!(checks(&mut Decay::new(1000), 0, |u, _| u), [0u64; 0]);
    }

    /// How many of `pages` pages that become unused at once may stay, for each millisecond from
    /// then on.
    fn kept_of(pages: usize, time_ms: u64) -> Vec<usize> {
        const START: u64 = 1_000;
        let mut decay = Decay::new(time_ms as i64);
        assert_eq!(decay.advance(START, 0), None);
        let mut unused = pages;
        let mut check = |ms| {
            if let Some(limit) = decay.advance(START + ms, unused) {
                unused = unused.min(limit);
            }
            unused
        };
        (0..=2 * time_ms + 2).map(&mut check).collect()
    }

    #[test]
    fn every_decay_time_is_kept_to_the_millisecond() {
        const PAGES: usize = 1 << 20;
        for time in [1, 2, 50, 199, 200, 201, 399, 1_000, 9_999] {
            let kept = kept_of(PAGES, time);
            // Pages age from the end of the epoch in which they were freed.
            let late = time.div_ceil(EPOCHS as u64);
            let gone = kept.iter().position(|&n| n == 0).expect("all go") as u64;
            assert!(gone <= time + late, "{time} ms: the last went after {gone}");
            assert!(
                gone >= time - time / 50,
                "{time} ms: all had gone after {gone}"
            );
            for (ms, &n) in kept.iter().enumerate() {
                let x = 1.0 - ms.min(time as usize) as f64 / time as f64;
                let share = x * x * x * (6.0 * x * x - 15.0 * x + 10.0);
                let off = n as f64 / PAGES as f64 - share;
                // One epoch at the steepest point of the curve, and another for the rounding.
                let max = 1.875 * (late as f64 / time as f64 + 1.0 / EPOCHS as f64);
                assert!(off.abs() <= max, "{time} ms: {n} pages after {ms}");
            }
        }
    }

    #[test]
    fn looks_at_the_right_moments_are_enough_for_that() {
        for time in [1, 50, 199, 200, 399, 1_000] {
            let mut left = 100_000;
            let at = checks(&mut Decay::new(time), left, |unused, limit| {
                left = unused.min(limit);
                left
            });
            assert_eq!(left, 0, "{time} ms");
            let (last, time) = (*at.last().expect("at least one"), time as u64);
            let late = 2 * time.div_ceil(EPOCHS as u64);
            // With many pages, the last hundredth of the curve is less than one page.
            assert!(
                (time - time / 50..=time + late).contains(&last),
                "{time} ms: {at:?}"
            );
        }
    }

    #[test]
    fn a_long_pause_lets_everything_go() {
        let mut d = Decay::new(1_000);
        d.advance(10, 0);
        assert!(d.advance(20, 500).unwrap() > 400);
        assert_eq!(d.advance(100_000, 500), Some(0));
    }

    #[test]
    fn a_page_that_is_due_waits_until_many_are_or_none_may_stay() {
        let mut d = Decay::new(10_000);
        assert_eq!(d.due(1_000, 0), None);
        let (mut unused, mut least) = (10_000, usize::MAX);
        for now in (1_050..11_000).step_by(50) {
            let Some(due) = d.due(now, unused) else {
                continue;
            };
            assert_eq!(due.pages, unused - due.limit);
            assert!(!due.idle, "they were freed a moment ago");
            unused = due.limit;
            if unused > 0 {
                least = least.min(due.pages);
            }
        }
        assert!((WORTH_PAGES..=1_000).contains(&least), "{least}");
        let rest = d.due(11_100, unused);
        assert!(unused == 0 || rest.is_some_and(|due| due.limit == 0));
    }

    #[test]
    fn a_heap_is_idle_if_it_frees_nothing_for_the_whole_time() {
        let mut d = Decay::new(1_000);
        assert_eq!(d.due(10, 0), None);
        assert_eq!(d.due(20, 1), None, "one that was just freed");
        assert_eq!((d.due(25, 1), d.limit()), (None, 0), "it may not stay");
        let due = d.next_due(1).expect("one page is left");
        assert!((1_015..1_030).contains(&due), "{due}");
        assert_eq!(d.due(due - 5, 1), None);
        let (limit, pages, idle) = (0, 1, true);
        assert_eq!(d.due(due, 1), Some(Due { limit, pages, idle }));
        assert_eq!(d.next_due(0), None);
    }

    #[test]
    fn a_time_set_while_nothing_is_unused_needs_no_clock_and_forgets_what_was() {
        let mut d = Decay::new(10_000);
        d.set_time(1_000, 0, 0);
        assert_eq!(d.advance(5_000, 0), None, "the first epoch begins");
        assert_eq!(d.advance(5_005, 100), Some(100), "they enter the backlog");
        d.set_time(2_000, 5_010, 40);
        assert_eq!(d.advance(5_020, 40), Some(39), "the 40 alone");
        d.set_time(1_000, 0, 0);
        assert_eq!(d.limit(), 0);
        assert_eq!((d.advance(9_000, 7), d.next_due(7)), (None, Some(9_005)));
    }

    #[test]
    fn never_and_at_once_are_what_they_say() {
        assert_eq!(Decay::new(-1).advance(1 << 40, 1000), None);
        assert_eq!(Decay::new(0).advance(5, 1000), Some(0));
    }
}
