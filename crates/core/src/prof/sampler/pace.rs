//! How often a thread is sampled: a thread that requests memory very fast is sampled more rarely.
//!
//! A sample costs as much as eighty pairs of `malloc` and `free` (3,000 instructions). A
//! thread with more than `prof_rate_max` samples a second doubles the mean distance between its
//! samples, again and again while that is so, and halves it when it is far below. Nothing is
//! biased: what a sample stands for goes by the distance that it was drawn with, and that depends
//! on the past alone.

use crate::cache::{Countdown, Pace};
use crate::prof::gap::lg_sample;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::time;

/// The fewest milliseconds in which [`WINDOW_SAMPLES`] of a thread may be taken; 0 for no such
/// limit.
static WINDOW_MS_MIN: AtomicU32 = AtomicU32::new(0);

/// Samples after which the time is looked at: a heap that is built in a moment has as many at the
/// distance asked for.
const WINDOW_SAMPLES: u32 = 512;
/// Slow events of a thinned thread for each look at the clock.
const CLOCK_EVENTS: u8 = 32;
/// Distances are doubled at most this many times.
const DOUBLINGS_MAX: u8 = 8;
/// Shorter distances than this are asked for on purpose, and are never changed (base-2 logarithm).
const LG_BYTES_MIN: u32 = 17;
/// A thread is far below with less than this part of the samples, in at least half of the time.
const FAR_BELOW_DIVISOR: u32 = 4;

/// Applies the option: the most samples of a thread in a second; 0 for no such limit.
pub fn configure(max: u32) {
    let ms = match max {
        0 => 0,
        max => (WINDOW_SAMPLES * 1000).div_ceil(max),
    };
    WINDOW_MS_MIN.store(ms, Ordering::Relaxed);
}

/// The mean bytes between the thread's samples now (base-2 logarithm).
pub fn lg_of(countdown: &Countdown) -> u32 {
    (lg_sample() + u32::from(countdown.pace().thinned)).min(63)
}

/// Whether the samples of the thread are thinned out.
#[inline]
pub fn is_thinned(countdown: &Countdown) -> bool {
    countdown.pace().thinned > 0
}

/// Counts a slow event of a thread whose samples are thinned out: it may have slowed down. Returns
/// whether its mean distance has changed, so that the distance to the next sample must be drawn
/// anew.
#[inline]
pub fn slow_event(countdown: &Countdown) -> bool {
    let old = countdown.pace();
    let events = old.events.wrapping_add(1) % CLOCK_EVENTS;
    countdown.set_pace(Pace { events, ..old });
    events == 0 && advance(countdown, 0)
}

/// Counts a sample of a thread.
#[inline]
pub fn sample(countdown: &Countdown) {
    let old = countdown.pace();
    let taken = old.taken.saturating_add(1);
    // Nothing can change yet, and a look at the clock is a system call in some sandboxes.
    if old.thinned == 0 && taken > 1 && u32::from(taken) < WINDOW_SAMPLES {
        countdown.set_pace(Pace { taken, ..old });
        return;
    }
    advance(countdown, 1);
}

/// Counts this many samples at the time that it is now. Returns whether the mean distance has
/// changed.
#[inline(never)]
fn advance(countdown: &Countdown, samples: u16) -> bool {
    let least = WINDOW_MS_MIN.load(Ordering::Relaxed);
    if least == 0 || lg_sample() < LG_BYTES_MIN {
        return false;
    }
    let now = (time::now_coarse_ns() / 1_000_000) as u32;
    let old = countdown.pace();
    let new = next(old, samples, now, least);
    countdown.set_pace(new);
    new.thinned != old.thinned
}

fn next(old: Pace, samples: u16, now: u32, least: u32) -> Pace {
    let taken = old.taken.saturating_add(samples);
    let ms = now.wrapping_sub(old.since_ms);
    let allowed = u64::from(WINDOW_SAMPLES) * u64::from(ms) / u64::from(least);
    let is_far_below = ms >= least / 2 && u64::from(taken) * u64::from(FAR_BELOW_DIVISOR) < allowed;
    if u32::from(taken) < WINDOW_SAMPLES && !is_far_below {
        return Pace { taken, ..old };
    }
    Pace {
        thinned: if is_far_below {
            old.thinned.saturating_sub(1)
        } else if ms < least {
            (old.thinned + 1).min(DOUBLINGS_MAX)
        } else {
            old.thinned
        },
        taken: 0,
        since_ms: now,
        ..old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that would have `rate` samples in a millisecond, for `ms` of them.
    fn run(mut pace: Pace, rate: f64, from_ms: u32, ms: u32) -> Pace {
        let mut due = 0.0;
        for now in from_ms..from_ms + ms {
            due += rate / f64::from(1u32 << pace.thinned);
            while due >= 1.0 {
                due -= 1.0;
                pace = next(pace, 1, now, 104);
            }
            // A slow event.
            pace = next(pace, 0, now, 104);
        }
        pace
    }

    #[test]
    fn a_fast_thread_is_sampled_about_as_often_as_is_allowed_and_a_slow_one_always() {
        let begun = Pace {
            thinned: 0,
            events: 0,
            taken: 0,
            since_ms: 5,
        };
        // 512 in 104 ms are 4.9 a millisecond.
        assert_eq!(run(begun, 4.0, 10, 10_000).thinned, 0);
        let fast = run(begun, 600.0, 10, 10_000);
        let left = 600.0 / f64::from(1u32 << fast.thinned);
        assert!((1.2..5.0).contains(&left), "{left}");
        assert_eq!(run(begun, 1e6, 10, 10_000).thinned, DOUBLINGS_MAX);
        // The thread slows down, though nothing is sampled meanwhile.
        assert_eq!(run(fast, 0.01, 20_000, 1000).thinned, 0);
    }
}
