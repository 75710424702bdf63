//! How much faster a program could be, and what would make that known better.

use super::model::{Bound, Figures};
use super::share::wilson;
use super::thresholds as limit;
use super::time;

/// What a page fault takes was measured on other pages than the program's, which cost more or less.
/// Where page faults are the trouble, they take this multiple of the estimate at least, and at most
/// all of the kernel's time: the calls that return the pages are a part of it.
const FAULT_ERROR_LOW: f64 = 0.6;
/// Where they are none, they may take this multiple.
const FAULT_ERROR_HIGH: f64 = 1.4;
/// Of calls and page faults that are nearly all of the time, the estimate takes too much.
const SHARE_MAX: f64 = 0.95;
/// An interval that is wider by this than its samples explain has another cause.
const EXCESS_WIDTH: f64 = 2.0;
/// The square of the factor of 95 % intervals.
const Z_SQUARED: f64 = 3.84;
/// More samples than this times as many are not worth waiting for.
const SAMPLES_TIMES_MAX: f64 = 60.0;

/// The bound, in wall time.
pub fn bound(f: &Figures, cpus: usize) -> Option<Bound> {
    let cpu = f.user_seconds + f.system_seconds;
    let saturated = cpu >= 0.95 * cpus as f64 * f.wall_seconds;
    let waiting = f.waiting.unwrap_or(0.0);
    // While all CPUs are busy, it may cost nothing that threads wait.
    let waiting = (if saturated { 0.0 } else { waiting }, waiting);
    let (low, high) = match (f.inside_low, f.inside_high) {
        (Some(low), Some(high)) if f.samples >= limit::SAMPLES_MIN => (low, high),
        // Waits are seen without samples, and are enough to tell.
        (_, high) if waiting.0 >= limit::LOCK_WAIT_SHARE_MIN => (0.0, high.unwrap_or(1.0)),
        _ => return None,
    };
    // A share of CPU time, of the part of busy time that does not wait, of the time that is busy.
    let busy = busy(f);
    let gone = |share: f64, waiting: f64| {
        let share = waiting + (1.0 - waiting) * share;
        1.0 / (1.0 - (busy * share).min(0.99))
    };
    let faults = fault_interval(f);
    let with = |inside: f64, faults: f64| inside + faults.min((SHARE_MAX - inside).max(0.0));
    let calls = (gone(low, waiting.0), gone(high, waiting.1));
    Some(Bound {
        low: gone(with(low, faults.0), waiting.0),
        high: gone(with(high, faults.1), waiting.1),
        calls: (faults.1 > 0.0).then_some(calls),
        without_faults: (faults.1 > 0.0).then(|| {
            let likely = with((low + high) / 2.0, fault_share(f));
            gone(likely, waiting.0)
        }),
    })
}

/// The share of CPU time that page faults of malloc's heap take: of all of them where the heap is
/// what the memory is, and else of those that pages have that went back and came again.
pub fn fault_share(f: &Figures) -> f64 {
    let share = if time::is_heap_malloc_s(f) {
        time::heap_faults(f)
    } else if time::to_and_fro(f).is_some() {
        f.refault_share
    } else {
        0.0
    };
    if share < limit::FAULT_SHARE_MIN {
        0.0
    } else {
        share
    }
}

/// Its interval. Where page faults are no trouble, they may cost nothing.
fn fault_interval(f: &Figures) -> (f64, f64) {
    let share = fault_share(f);
    let cpu = (f.user_seconds + f.system_seconds).max(1e-9);
    let system = f.system_seconds / cpu;
    let at_most = (share * FAULT_ERROR_HIGH).min(system);
    // The kernel's time is that of waits, too, where there are some.
    let waits = f.waiting.unwrap_or(0.0) >= limit::LOCK_WAIT_SHARE_MIN;
    if share == 0.0 {
        (0.0, 0.0)
    } else if time::heap_grows(f) || time::to_and_fro(f).is_some() {
        (
            share * FAULT_ERROR_LOW,
            if waits { at_most } else { system },
        )
    } else {
        (0.0, at_most)
    }
}

/// The part of its wall time in which the program computes or waits for the allocator, at most:
/// what it sleeps besides becomes no shorter. Of several threads, those that sleep may be the same
/// all the time.
pub fn busy(f: &Figures) -> f64 {
    let asleep: f64 = f.waits_outside.iter().map(|(_, share)| share).sum();
    let awake = (1.0 - asleep).max(0.0) * f.threads.max(1) as f64;
    awake.min(1.0)
}

/// What would make an answer of an interval that lies on both sides of the threshold.
pub fn settle(f: &Figures, bound: Option<Bound>) -> super::Settle {
    let more = |times: f64| super::Settle::Samples {
        times: times.max(2.0),
    };
    let (Some(_), Some(inside)) = (bound, f.inside) else {
        let wanted = limit::WANTED_SAMPLES as f64;
        return more(wanted / f.samples.max(1) as f64);
    };
    let of_samples = wilson(inside * f.samples as f64, f.samples as f64);
    let width = |(low, high): (f64, f64)| (high - low).max(1e-9);
    let whole = (f.inside_low.unwrap_or(0.0), f.inside_high.unwrap_or(1.0));
    if width(whole) > width(of_samples) * EXCESS_WIDTH {
        return match (f.probe_cost, f.calls.mallocs) {
            (None, 1..) => super::Settle::ProbeCost,
            _ => super::Settle::QuietMachine,
        };
    }
    if fault_share(f) > 0.0 {
        return super::Settle::Comparison;
    }
    // The samples whose interval about this share would end at the threshold's share.
    let threshold = (1.0 - 1.0 / limit::BOUND_FACTOR_MIN) / busy(f).max(0.05);
    let distance = (inside - threshold).abs().max(1e-6);
    let wanted = Z_SQUARED * threshold * (1.0 - threshold).max(0.0) / distance.powi(2);
    let times = wanted / f.samples as f64;
    if times > SAMPLES_TIMES_MAX {
        return super::Settle::Comparison;
    }
    more(times)
}
