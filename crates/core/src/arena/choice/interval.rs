//! Counts allocated bytes for periodic reports (the option `stats_interval`).
//!
//! Bytes are counted, in whole batches, where caches fill up and where a block bypasses the caches;
//! what a cache reuses by itself is not counted. The thread that finds a report due makes it once
//! it holds no lock (`api::pending`). With the option off, this costs a load and a comparison per
//! batch.

use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::pending::{self, PendingWork};

/// Bytes between reports; 0 for none.
static EVERY: AtomicU64 = AtomicU64::new(0);
static HANDED_OUT: AtomicU64 = AtomicU64::new(0);

/// Sets the option, before the first block: negative for no reports.
pub fn configure(every: i64) {
    // As in jemalloc, 0 means a report whenever there is something to count.
    let every = u64::try_from(every).map_or(0, |every| every.max(1));
    EVERY.store(every, Ordering::Relaxed);
}

/// Counts `bytes` allocated bytes.
#[inline(always)]
pub fn count(bytes: usize) {
    let every = EVERY.load(Ordering::Relaxed);
    if every != 0 {
        add(bytes as u64, every);
    }
}

#[cold]
fn add(bytes: u64, every: u64) {
    let before = HANDED_OUT.fetch_add(bytes, Ordering::Relaxed);
    if before / every != before.wrapping_add(bytes) / every {
        pending::add(PendingWork::Report);
    }
}

/// Returns true to one caller when a report is due: that caller must make it.
pub fn claim() -> bool {
    pending::claim(PendingWork::Report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_due_once_for_every_interval_that_was_passed() {
        crate::testing::own_process!();
        let _alone = crate::testing::alone();
        let due = |bytes| {
            count(bytes);
            claim()
        };
        configure(-1);
        assert!(!due(1 << 40));
        configure(1000);
        HANDED_OUT.store(0, Ordering::Relaxed);
        assert_eq!(
            [999, 1, 999, 5000, 0].map(due),
            [false, true, false, true, false]
        );
        configure(-1);
        claim();
    }
}
