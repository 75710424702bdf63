//! Whether this process records, and the clock that stamps its records.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch;
use crate::clock::monotonic_ns;

/// Whether this process records, and by which clock.
static MODE: AtomicU32 = AtomicU32::new(OFF);
const OFF: u32 = 0;
const BY_TSC: u32 = 1;
const BY_MONOTONIC: u32 = 2;

/// What [`MODE`] was when a call began.
#[derive(Clone, Copy)]
pub struct Mode(u32);

impl Mode {
    pub const BY_TSC: Mode = Mode(BY_TSC);

    #[inline(always)]
    pub fn is_on(self) -> bool {
        self.0 != OFF
    }

    #[inline(always)]
    pub fn is_by_tsc(self) -> bool {
        self.0 == BY_TSC
    }
}

/// What this process does now.
#[inline(always)]
pub fn mode() -> Mode {
    // Whoever finds that the process records finds its pool, too.
    Mode(MODE.load(Ordering::Acquire))
}

pub fn is_on() -> bool {
    mode().is_on()
}

/// Recording begins.
pub fn begin(by_tsc: bool) {
    let mode = if by_tsc { BY_TSC } else { BY_MONOTONIC };
    MODE.store(mode, Ordering::Release);
}

/// Recording ends.
pub fn stop() {
    MODE.store(OFF, Ordering::Relaxed);
}

pub fn clock() -> u64 {
    clock_in(mode())
}

#[inline(always)]
pub fn clock_in(mode: Mode) -> u64 {
    if mode.0 == BY_MONOTONIC {
        return monotonic_ns();
    }
    arch::ticks_after_loads()
}
