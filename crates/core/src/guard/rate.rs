//! How many blocks are guarded, and what looking for them costs.
//!
//! While a request is looked for, all requests are counted, which costs a few instructions each. So
//! a process that allocates fast looks for short spans only: until it has found one, and again when
//! the rate allows the next. A slow event of some thread begins the next span ([`pause`],
//! [`go_on`]). A process that allocates slowly looks all the time.

use super::report;
use crate::cache::inside;
use crate::prof::guards;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::time;
use crate::upkeep;

/// The nanoseconds between two guarded blocks; 0 for no such bound.
static INTERVAL_NS: AtomicU64 = AtomicU64::new(0);
/// When the next one may be given out, if there was none for a while.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// When the present span of looking for a request began.
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);
static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// So many blocks may follow each other at once after a time without any.
const BURST_BLOCKS: u64 = 16;
/// A span that lasts longer than this costs little.
const SLOW_NS: u64 = 5_000_000;
/// After so many findings, with which the program goes on, no more blocks are guarded.
const FINDINGS_MAX: u32 = 16;

/// Sets the most guarded blocks in a second, 0 for no such bound, and begins anew.
pub fn begin(max_a_second: u32) {
    let interval = 1_000_000_000u64.checked_div(max_a_second.into());
    INTERVAL_NS.store(interval.unwrap_or(0), Ordering::Relaxed);
    NEXT_NS.store(0, Ordering::Relaxed);
}

/// Whether so much was found that no more blocks are guarded.
pub fn is_over() -> bool {
    report::findings() >= FINDINGS_MAX
}

/// Whether a block may be guarded now, as far as the time goes.
pub fn may_take() -> bool {
    let interval = INTERVAL_NS.load(Ordering::Relaxed);
    if interval == 0 {
        return true;
    }
    let (now, next) = (time::now_ns(), NEXT_NS.load(Ordering::Relaxed));
    let new = next.max(now.saturating_sub(BURST_BLOCKS * interval)) + interval;
    new <= now + interval
        && NEXT_NS
            .compare_exchange(next, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}

/// Ends the span of looking for a request, if the process allocates fast and none may have a
/// guarded block for now.
pub fn pause() {
    let next = NEXT_NS.load(Ordering::Relaxed);
    if INTERVAL_NS.load(Ordering::Relaxed) == 0 {
        return;
    }
    let now = time::now_ns();
    if next <= now {
        return;
    }
    let began = BEGAN_NS.swap(now, Ordering::Relaxed);
    if now.saturating_sub(began) > SLOW_NS {
        return;
    }
    if let Some(_inside) = inside::enter() {
        guards::look(false);
        upkeep::wake_guards_at(next / 1_000_000 + 1);
    }
}

/// Begins the next span.
#[cold]
#[inline(never)]
pub fn go_on() {
    if let Some(_inside) = inside::enter() {
        BEGAN_NS.store(time::now_ns(), Ordering::Relaxed);
        guards::look(true);
    } else {
        // A fork is under way.
        upkeep::wake_guards_at(1);
    }
}

/// Counts a guarded block.
pub fn count() {
    BLOCKS.fetch_add(1, Ordering::Relaxed);
}

/// Guarded blocks so far.
pub fn blocks() -> u64 {
    BLOCKS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_quiet_time_a_burst_is_allowed_and_then_the_rate() {
        crate::testing::own_process!();
        // One in a hundred seconds: none of the time of this test.
        INTERVAL_NS.store(100_000_000_000, Ordering::Relaxed);
        NEXT_NS.store(0, Ordering::Relaxed);
        let taken = (0..100).filter(|_| may_take()).count();
        let most = BURST_BLOCKS as usize + 1;
        // A machine that has just started has no quiet time behind it.
        assert!((1..=most).contains(&taken), "{taken}");
        assert!(!may_take());
        begin(0);
        assert!((0..1000).all(|_| may_take()), "there is no bound");
        begin(u32::MAX);
        assert!(may_take());
    }

    #[test]
    fn blocks_are_counted() {
        crate::testing::own_process!();
        count();
        count();
        assert_eq!((blocks(), is_over()), (2, false));
    }
}
