//! The clock of stamps, and its times in a recording.

use std::fs;
use std::thread;
use std::time::Duration;

use mallard_trace::event::UNIT_NS;

use crate::arch::CLOCK_SOURCE;
use crate::clock::{monotonic_ns, ticks, ticks_and_monotonic_ns};

/// Turns stamps of the probe into units of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    monotonic: bool,
    /// The stamp at which the recording begins.
    zero: u64,
    /// Units of a tick, as a fraction of 2^64.
    units: u64,
}

/// How long the counter's rate is measured.
const RATE_TIME: Duration = Duration::from_millis(20);

impl Clock {
    /// The processor's counter where the kernel itself uses it, because then it is the same on all
    /// CPUs; otherwise `CLOCK_MONOTONIC`.
    pub fn measured() -> Clock {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let by_ticks = fs::read_to_string(path).is_ok_and(|name| name.trim() == CLOCK_SOURCE);
        if !by_ticks {
            return Clock::monotonic();
        }
        let (first_ticks, first_time) = ticks_and_monotonic_ns();
        thread::sleep(RATE_TIME);
        let (last_ticks, last_time) = ticks_and_monotonic_ns();
        let (passed, time) = (last_ticks - first_ticks, last_time - first_time);
        Clock {
            monotonic: false,
            zero: ticks(),
            units: per_tick(time as f64 / passed.max(1) as f64),
        }
    }

    /// `CLOCK_MONOTONIC`.
    pub fn monotonic() -> Clock {
        Clock {
            monotonic: true,
            zero: monotonic_ns(),
            units: per_tick(1.0),
        }
    }

    pub fn is_monotonic(self) -> bool {
        self.monotonic
    }

    pub fn name(self) -> &'static str {
        if self.monotonic {
            "monotonic"
        } else {
            CLOCK_SOURCE
        }
    }

    /// The time of a stamp, in units.
    pub fn units(self, stamp: u64) -> u64 {
        self.length(stamp.saturating_sub(self.zero))
    }

    /// The length of a time in ticks, in units.
    pub fn length(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.units)) >> 64) as u64
    }

    pub fn now(self) -> u64 {
        self.units(if self.monotonic {
            monotonic_ns()
        } else {
            ticks()
        })
    }
}

fn per_tick(nanoseconds: f64) -> u64 {
    (nanoseconds / UNIT_NS as f64 * 2_f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_a_second_is_as_many_units() {
        let clock = Clock::measured();
        // The thread may lose its CPU between any two of these.
        let outer = monotonic_ns();
        let begun = clock.now();
        let inner = monotonic_ns();
        thread::sleep(Duration::from_millis(100));
        let inner = monotonic_ns() - inner;
        let passed = (clock.now() - begun) * UNIT_NS;
        let outer = monotonic_ns() - outer;
        let right = inner / 20 * 19..outer / 20 * 21;
        assert!(right.contains(&passed), "{passed} ns, of {right:?}");
    }
}
