//! What can be changed while the process runs.

use super::start::{self, start};
use crate::background;
use crate::cache::keeper;
use crate::heap::HEAP;

/// The longest decay time in milliseconds, jemalloc's: what its seconds can count.
const LONGEST_DECAY: i64 = 18_446_744_072_000;

/// Whether a decay time can be that: -1 for never, or so many milliseconds.
pub fn is_decay_time(ms: i64) -> bool {
    (-1..=LONGEST_DECAY).contains(&ms)
}

/// The decay times in milliseconds, of dirty and of muzzy pages, that arenas begin with.
pub fn default_decay() -> (i64, i64) {
    start();
    HEAP.first_decay()
}

/// Sets the decay times that arenas made from now on begin with. False, and nothing changed, where
/// one cannot be a decay time.
#[must_use]
pub fn set_default_decay(dirty_ms: Option<i64>, muzzy_ms: Option<i64>) -> bool {
    start();
    let valid = [dirty_ms, muzzy_ms]
        .into_iter()
        .flatten()
        .all(is_decay_time);
    if valid {
        HEAP.set_first_decay(dirty_ms, muzzy_ms);
    }
    valid
}

/// Whether there may be a thread of Mallard's own that returns memory.
pub fn background_thread() -> bool {
    start();
    keeper::is_allowed()
}

/// Starts that thread, and has it come back whenever it ended; or ends it, and waits until it is
/// gone. False when the system refused a thread, or when the options do without what it lives on:
/// threads' caches, by which it knows of the threads.
#[must_use]
pub fn set_background_thread(on: bool) -> bool {
    start();
    if !on {
        background::stop();
        return true;
    }
    start::extras() & !start::XMALLOC == 0 && background::start_now()
}
