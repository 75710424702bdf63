//! The process's snapshot, and copies of it.
//!
//! [`refresh`] updates it in place, because its records keep counts that must not fall; a report,
//! which calls foreign code in between, uses its own copy ([`take`]).
//!
//! The lock comes before those of all layers, which its holder takes one at a time.

use super::gather;
use super::snapshot::Snapshot;
use crate::arena::Arena;
use crate::cache::inside;
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::rank::Rank;

static SNAPSHOT: Mutex<Snapshot> = Mutex::named(Rank::Statistics, Snapshot::empty());

/// Updates the process's snapshot; returns false, and leaves it unchanged, when memory is out.
pub fn refresh() -> bool {
    let mut snapshot = SNAPSHOT.lock_seldom();
    refreshed(&mut snapshot)
}

#[inline(never)]
fn refreshed(snapshot: &mut Snapshot) -> bool {
    let room = snapshot.make_room().is_some();
    if room {
        gather::gather(snapshot);
        snapshot.totals.own_lock = SNAPSHOT.raw().reading();
        snapshot.epoch += 1;
    }
    room
}

/// Calls `f` with the process's snapshot, which is taken first if there is none yet; `None` when
/// memory is out. `f` must neither allocate nor free.
pub fn with<T>(f: impl FnOnce(&Snapshot) -> T) -> Option<T> {
    let mut snapshot = SNAPSHOT.lock_seldom();
    let there = snapshot.epoch > 0 || refreshed(&mut snapshot);
    there.then(|| f(&snapshot))
}

/// Refreshes the process's snapshot and copies it; `None` when memory is out.
pub fn take() -> Option<Snapshot> {
    let _inside = inside::enter_or_wait();
    let mut snapshot = SNAPSHOT.lock_seldom();
    refreshed(&mut snapshot).then(|| snapshot.copy()).flatten()
}

/// Adds the history of an arena that was just destroyed to that of all destroyed ones.
pub fn retire(arena: &Arena) {
    let mut snapshot = SNAPSHOT.lock_seldom();
    // If there is no memory for that, the history is lost.
    if snapshot.make_room_for_destroyed().is_some() {
        gather::retire(&mut snapshot, arena);
    }
}

/// Resets the readings of all locks in the statistics.
pub fn clear_readings() {
    gather::clear_readings();
    SNAPSHOT.raw().clear_reading();
}

/// The lock of the statistics, for `fork`.
pub fn lock() -> &'static RawLock {
    SNAPSHOT.raw()
}
