//! Options that can be changed while the process runs.

use super::extras::{XMALLOC, extras};
use super::start::{DECAY_MS_MAX, start};
use crate::background;
use crate::heap::PAGE_HEAPS;
use crate::upkeep::background_state;

/// Whether this is a valid decay time: -1 for never, or a number of milliseconds.
pub fn is_decay_time(ms: i64) -> bool {
    (-1..=DECAY_MS_MAX).contains(&ms)
}

/// The decay times in milliseconds of new arenas, for dirty and for muzzy pages.
pub fn default_decay() -> (i64, i64) {
    start();
    PAGE_HEAPS.first_decay()
}

/// Sets the decay times of arenas made from now on. Returns false, and changes nothing, if one is
/// not a valid decay time.
#[must_use]
pub fn set_default_decay(dirty_ms: Option<i64>, muzzy_ms: Option<i64>) -> bool {
    start();
    let valid = [dirty_ms, muzzy_ms]
        .into_iter()
        .flatten()
        .all(is_decay_time);
    if valid {
        PAGE_HEAPS.set_first_decay(dirty_ms, muzzy_ms);
    }
    valid
}

/// Whether the background thread is allowed.
pub fn background_thread() -> bool {
    start();
    background_state::is_allowed()
}

/// Starts the background thread, and restarts it whenever it has ended; or stops it, and waits
/// until it is gone. Returns false when the system refused a thread, or when the options rule out
/// thread caches, which the background thread needs to know of the threads.
#[must_use]
pub fn set_background_thread(on: bool) -> bool {
    start();
    if !on {
        background::stop();
        return true;
    }
    extras() & !XMALLOC == 0 && background::start_now()
}
