//! When free pages go back: a smooth curve over time.
//!
//! Pages that became free keep a share of the right to stay that falls from one to zero along a
//! smoothstep over the decay time, so that memory is returned gradually, and what a program is about
//! to use again is mostly still there. Time is cut into 200 epochs; for each, the number of pages
//! that became unused in it is remembered, and the sum of these, weighted by the curve, is how many
//! may stay. This is jemalloc's scheme (its `decay.c`; the curve is Perlin's smootherstep).

/// Epochs in a decay time.
const EPOCHS: usize = 200;
/// Weights are fixed-point numbers with so many fractional bits.
const FRACTION: u32 = 24;

/// 6x⁵ − 15x⁴ + 10x³ at x = i/200, for what became free 200 − i epochs ago.
static CURVE: [u32; EPOCHS + 1] = {
    let mut t = [0; EPOCHS + 1];
    let mut i = 0;
    while i <= EPOCHS {
        let (x, n) = (i as u128, EPOCHS as u128);
        let y = 6 * x * x * x * x * x + 10 * x * x * x * n * n - 15 * x * x * x * x * n;
        t[i] = ((y << FRACTION) / (n * n * n * n * n)) as u32;
        i += 1;
    }
    t
};

/// The decay of one kind of page.
pub struct Decay {
    /// Milliseconds from free to returned: 0 at once, negative never.
    time_ms: i64,
    /// When the running epoch began.
    epoch_start: u64,
    /// Pages that became unused in each of the last epochs, the latest last.
    backlog: [u32; EPOCHS],
    /// Unused pages at the end of the last epoch, after purging.
    settled: usize,
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

    /// Sets the time; what is unused now starts to decay anew.
    pub fn set_time(&mut self, time_ms: i64, now: u64, unused: usize) {
        *self = Decay::new(time_ms);
        self.epoch_start = now;
        self.backlog[EPOCHS - 1] = unused.min(u32::MAX as usize) as u32;
        self.settled = unused;
    }

    fn epoch_ms(&self) -> u64 {
        (self.time_ms as u64 / EPOCHS as u64).max(1)
    }

    /// Given the time and how many pages are unused, how many may stay; none when the running epoch
    /// is not over, and nothing is to be done yet.
    pub fn advance(&mut self, now: u64, unused: usize) -> Option<usize> {
        match self.time_ms {
            ..0 => return None,
            0 => return Some(0),
            _ => {}
        }
        if self.epoch_start == 0 {
            self.epoch_start = now;
        }
        let passed = now.saturating_sub(self.epoch_start) / self.epoch_ms();
        if passed == 0 {
            return None;
        }
        self.epoch_start += passed * self.epoch_ms();
        let passed = (passed as usize).min(EPOCHS);
        self.backlog.copy_within(passed.., 0);
        self.backlog[EPOCHS - passed..].fill(0);
        let fresh = unused.saturating_sub(self.settled).min(u32::MAX as usize);
        self.backlog[EPOCHS - 1] = fresh as u32;
        let limit = self.limit();
        self.settled = unused.min(limit);
        Some(limit)
    }

    fn limit(&self) -> usize {
        let sum: u64 = (self.backlog.iter().zip(&CURVE[1..]))
            .map(|(&n, &w)| n as u64 * w as u64)
            .sum();
        (sum >> FRACTION) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_rises_from_zero_to_one_and_is_symmetric() {
        assert_eq!(CURVE[0], 0);
        assert_eq!(CURVE[EPOCHS], 1 << FRACTION);
        assert!(CURVE.windows(2).all(|w| w[0] <= w[1]));
        for i in 0..=EPOCHS {
            let sum = CURVE[i] + CURVE[EPOCHS - i];
            assert!(sum.abs_diff(1 << FRACTION) <= 2, "at {i}: {sum}");
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

    #[test]
    fn a_long_pause_lets_everything_go() {
        let mut d = Decay::new(1_000);
        d.advance(10, 0);
        assert!(d.advance(20, 500).unwrap() > 400);
        assert_eq!(d.advance(100_000, 500), Some(0));
    }

    #[test]
    fn never_and_at_once_are_what_they_say() {
        assert_eq!(Decay::new(-1).advance(1 << 40, 1000), None);
        assert_eq!(Decay::new(0).advance(5, 1000), Some(0));
    }
}
