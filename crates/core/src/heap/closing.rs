//! How many freed runs a fenced page heap may close (`fence`).
//!
//! A run that is closed has no memory, so its next use costs a call and a page fault for each page.
//! Where a program frees and takes long runs all the time, that was most of its time. So closing
//! may take a fiftieth of the time that passes, and a little in advance. Other runs stay open, as
//! short ones do.

/// What it costs to close and open a run, and one of its pages to be filled again.
const RUN_COST_NS: u64 = 3000;
const PAGE_COST_NS: u64 = 600;
/// One part in this many of the time may be spent.
const TIME_PART: u64 = 50;
/// The most that is spent in advance.
const ADVANCE_NS_MAX: u64 = 5_000_000;

/// Zero is what a page heap begins with.
pub struct Closing {
    /// What was spent and is not paid for yet.
    owed_ns: u64,
    /// When it was last paid for, in milliseconds.
    paid_ms: u64,
}

impl Closing {
    pub const fn new() -> Closing {
        Closing {
            owed_ns: 0,
            paid_ms: 0,
        }
    }

    /// Whether a run of so many pages may be closed now, which is spent then.
    pub fn may_close(&mut self, now_ms: u64, pages: usize) -> bool {
        let passed_ms = now_ms.saturating_sub(self.paid_ms);
        let paid_ns = passed_ms.saturating_mul(1_000_000) / TIME_PART;
        self.paid_ms = self.paid_ms.max(now_ms);
        self.owed_ns = self.owed_ns.saturating_sub(paid_ns);
        let cost_ns = (pages as u64)
            .saturating_mul(PAGE_COST_NS)
            .saturating_add(RUN_COST_NS);
        let owed_ns = self.owed_ns.saturating_add(cost_ns);
        if owed_ns > ADVANCE_NS_MAX {
            return false;
        }
        self.owed_ns = owed_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_takes_a_fiftieth_of_the_time_in_the_long_run() {
        let mut closing = Closing::new();
        let (pages, start_ms, run_ms) = (35, 1_000_000, 10_000);
        let closed = (start_ms..start_ms + run_ms)
            .flat_map(|ms| [ms; 10])
            .filter(|&ms| closing.may_close(ms, pages))
            .count() as u64;
        let spent = closed * (RUN_COST_NS + pages as u64 * PAGE_COST_NS);
        let may = ADVANCE_NS_MAX + run_ms * 1_000_000 / TIME_PART;
        assert!(spent <= may && spent > may * 9 / 10, "{spent} of {may}");
    }

    #[test]
    fn a_few_runs_are_closed_at_any_time_and_a_very_long_one_never() {
        let mut closing = Closing::new();
        assert!((0..50).all(|_| closing.may_close(5, 100)));
        assert!(!closing.may_close(5, 1 << 20));
        assert!(!Closing::new().may_close(u64::MAX, usize::MAX));
    }
}
