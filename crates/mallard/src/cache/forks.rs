//! Forks: how one waits until no other thread is inside (`inside`), and what follows it.
//!
//! `crate::fork` calls this before and after the C library forks.

use super::inside::{CROWD, FORKING, FORKS, Forking, Found, GATE, MAY_ENTER, found, place_of};
use super::life::{deferred, registry};
use crate::arena;
use crate::heap::PAGE_HEAPS;
use crate::sys::atomic::Ordering;
use crate::sys::{time, tls};
use crate::upkeep::background_state;

/// Naps before a fork stops waiting. The first is for threads at work that have caches; the second
/// for everything else, which is short or may itself wait for the forking thread.
const PATIENCE_NAPS: u32 = 10_000;
const SHORT_PATIENCE_NAPS: u32 = 200;
/// Rounds in which it only yields, before it naps.
const YIELDS: u32 = 50;

fn pause(round: u32) {
    if round < YIELDS {
        time::give_way();
    } else {
        time::nap();
    }
}

/// Called before a fork: keeps other threads out and waits until they have left.
pub fn begin_fork(holds_lock: impl Fn() -> bool) -> Found {
    let me = tls::thread();
    let place = claim(me);
    FORKS.fetch_add(1, Ordering::Relaxed);
    GATE.close();
    let mut round = 0;
    let mut found = loop {
        let seen = registry::look_inside(me);
        let (others, mine) = seen.unwrap_or((true, false));
        let mine = mine || tls::depth() != 0;
        let crowd = CROWD.count() != tls::depth() as u32;
        if !others && !crowd {
            break if mine { Found::Inside } else { Found::Alone };
        }
        let is_short = mine || !others || seen.is_none();
        if round
            >= if is_short {
                SHORT_PATIENCE_NAPS
            } else {
                PATIENCE_NAPS
            }
        {
            // This thread may be about to make its cache.
            let inside = mine || holds_lock();
            break if inside { Found::Inside } else { Found::Others };
        }
        pause(round);
        round += 1;
    };
    if core::ptr::eq(place, &FORKING[0]) {
        MAY_ENTER.store(found == Found::Alone, Ordering::Relaxed);
    } else {
        found = Found::Inside;
    }
    place.found.store(found as u8, Ordering::Relaxed);
    found
}

/// Takes the first place among those that fork, or another if that stays taken.
fn claim(me: usize) -> &'static Forking {
    let take = |place: &&Forking| {
        (place.thread)
            .compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    // A fork handler of the program may itself fork.
    let mut round = match place_of(me) {
        Some(_) => SHORT_PATIENCE_NAPS,
        None => 0,
    };
    loop {
        let most = if round < SHORT_PATIENCE_NAPS {
            1
        } else {
            FORKING.len()
        };
        if let Some(place) = FORKING[..most].iter().find(take) {
            return place;
        }
        pause(round);
        round += 1;
    }
}

/// Ends a fork in the parent.
pub fn end_fork() {
    let found = found();
    // A fork that began before the handlers were registered has none.
    let Some(place) = place_of(tls::thread()) else {
        return;
    };
    place.thread.store(0, Ordering::Release);
    if GATE.open() {
        clean_up(found);
    }
}

fn clean_up(found: Found) {
    match found {
        // This thread is in the middle of a call: leave the work to the next look of any thread.
        Found::Inside => deferred::leave_work(),
        _ => deferred::settle(),
    }
}

/// Ends a fork in the child, where only the calling thread exists.
pub fn end_fork_in_child() {
    let found = found();
    FORKING
        .iter()
        .for_each(|f| f.thread.store(0, Ordering::Relaxed));
    if found != Found::Inside {
        CROWD.reset();
    }
    GATE.reset();
    PAGE_HEAPS.all().for_each(|heap| heap.after_fork());
    arena::manual::after_fork();
    background_state::after_fork();
    registry::after_fork();
    clean_up(found);
}

/// Whether any thread is inside, as a fork sees it.
#[cfg(test)]
pub fn is_any_inside() -> bool {
    let seen = registry::look_inside(0);
    seen.is_some_and(|(others, _)| others) || CROWD.is_any()
}
