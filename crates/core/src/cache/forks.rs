//! Forks: how one waits until no other thread is inside (`inside`), and what follows it.
//!
//! `crate::fork` calls this before and after the C library forks.
//!
//! A thread that a signal interrupted inside gets no further before its fork is over, so a fork
//! must not wait for its own thread, nor for long: a handler that forks whenever a timer says would
//! leave its thread no time. Hence these bounds:
//!
//! - A process with one thread never waits ([`company`]).
//! - Others have [`LONG_NS`], or [`SHORT_NS`] if they have no caches or if this thread is inside.
//!   For half of that, a fork waits until they have left; not if it holds a lock itself, for which
//!   they may wait. In the rest it takes the locks that it gets, in their order, so that the data
//!   of the child is whole. It takes [`LONG_NS`] more for that if it is outside.
//! - Waits of threads that are inside, and waits in vain, have a common account. It holds
//!   [`ACCOUNT_NS`], and fills up again by one part in [`SHARE`] of the time that passes.
//!
//! So a handler that forks again and again waits for a quarter of the time at most, beyond the
//! first two seconds. A wait that ends because the others have left is not charged to a thread that
//! was outside: they got on meanwhile.

use super::inside::{
    CROWD, FORKING, FORKS, Forking, Found, GATE, MAY_ENTER, company, place_of, places,
};
use super::life::{deferred, registry};
use crate::arena;
use crate::heap::PAGE_HEAPS;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::{time, tls};
use crate::upkeep::background_state;

/// Nanoseconds that a fork waits at most: where threads with caches are at work; and for everything
/// else, which is short or may itself wait for the forking thread.
const LONG_NS: u64 = 2_000_000_000;
const SHORT_NS: u64 = 100_000_000;
/// The most that is left on the common account of waits, and how much longer than such a wait it
/// takes until it is forgotten.
const ACCOUNT_NS: u64 = LONG_NS;
const SHARE: u64 = 4;
/// How often a fork spins before it naps.
const SPINS: u32 = 16;

/// When all charged waits will be forgotten.
static FORGOTTEN_NS: AtomicU64 = AtomicU64::new(0);

/// How long a fork waits for others: for half of what is left at a time, because what it waits for
/// may itself wait for this thread, and what follows may not.
pub struct Patience {
    began: u64,
    /// When the fork waits no more, and when it does not for what it waits for now.
    end: u64,
    until: u64,
    spins: u32,
}

impl Patience {
    #[inline(always)]
    fn new(max: u64) -> Self {
        let began = time::now_ns();
        let charged = FORGOTTEN_NS.load(Ordering::Relaxed).saturating_sub(began) / SHARE;
        Patience {
            began,
            end: began + max.min(ACCOUNT_NS.saturating_sub(charged)),
            until: 0,
            spins: 0,
        }
    }

    /// Pauses before the next attempt, unless the fork has made enough attempts for long enough.
    #[inline(never)]
    fn goes_on(&mut self) -> bool {
        #[cfg(test)]
        PAUSES.fetch_add(1, Ordering::Relaxed);
        self.spins += 1;
        let now = time::now_ns();
        if self.spins == 1 {
            self.until = now + self.end.saturating_sub(now) / 2;
        }
        if self.spins <= SPINS {
            (0..100).for_each(|_| core::hint::spin_loop());
            return true;
        }
        let goes_on = now < self.until;
        if goes_on {
            time::nap();
        }
        goes_on
    }

    /// Repeats `take` until it succeeds.
    pub fn wait_for(&mut self, take: impl Fn() -> bool) {
        self.spins = 0;
        while !take() && self.goes_on() {}
    }

    /// Charges the wait, which is over.
    #[inline(always)]
    fn charge(&self) {
        let waited = time::now_ns() - self.began;
        let from = FORGOTTEN_NS.load(Ordering::Relaxed).max(self.began);
        FORGOTTEN_NS.store(from + waited * SHARE, Ordering::Relaxed);
    }
}

/// What `begin_fork` does with all locks: says whether this thread holds any or, with patience,
/// takes what it gets.
pub type Locks = fn(Option<&mut Patience>) -> bool;

/// Called before a fork: keeps other threads out and waits until they have left. If some stay, it
/// takes their locks.
pub fn begin_fork(locks: Locks) {
    let me = tls::thread();
    let is_nested = place_of(me).is_some();
    let place = if FORKING[0].take(me) {
        &FORKING[0]
    } else {
        claim(me, is_nested)
    };
    let number = FORKS.fetch_add(1, Ordering::Relaxed);
    place.number.store(number, Ordering::Relaxed);
    GATE.close();
    let mut view = ForkView::new(me);
    // What an outer fork of this thread took would be freed with what this one takes.
    let takes_locks = view.others && !is_nested;
    place.took_locks.store(takes_locks, Ordering::Relaxed);
    if view.others {
        wait(me, &mut view, locks, takes_locks);
    }
    let mut found = match (view.inside, view.others) {
        (true, _) => Found::Inside,
        (_, true) => Found::Others,
        _ => Found::Alone,
    };
    if core::ptr::eq(place, &FORKING[0]) {
        MAY_ENTER.store(found == Found::Alone, Ordering::Relaxed);
    } else {
        found = Found::Inside;
    }
    place.found.store(found as u8, Ordering::Relaxed);
    place.crowd.store(view.crowd, Ordering::Relaxed);
}

/// What a thread that forks sees.
struct ForkView {
    /// Whether other threads are inside, and whether any of them may have a cache.
    others: bool,
    with_caches: bool,
    /// Whether this thread is inside, and how often it is inside without a mark.
    inside: bool,
    crowd: u32,
}

impl ForkView {
    #[inline(never)]
    fn new(me: usize) -> Self {
        let (with_caches, mine) = registry::find_inside(me).unwrap_or((true, false));
        let (all, depth) = (CROWD.count(), tls::depth() as u32);
        let others = with_caches || all != depth;
        // It may be this thread's interrupted call that is inside.
        let is_mine = others && company::is_alone();
        ForkView {
            others: others && !is_mine,
            with_caches,
            inside: is_mine || mine || depth != 0,
            crowd: if is_mine { all } else { depth },
        }
    }
}

/// Waits until no other thread is inside. If some stay, takes the locks.
#[cold]
#[inline(never)]
fn wait(me: usize, view: &mut ForkView, locks: Locks, takes_locks: bool) {
    let holds = locks(None);
    view.inside |= holds;
    let is_long = view.with_caches && !view.inside;
    let mut patience = Patience::new(if is_long { LONG_NS } else { SHORT_NS });
    while view.others && !holds && patience.goes_on() {
        *view = ForkView::new(me);
    }
    if view.others && takes_locks {
        if !view.inside {
            // No thread waits for this one.
            patience.end += LONG_NS;
        }
        locks(Some(&mut patience));
    }
    if view.others || view.inside {
        patience.charge();
    }
}

/// Takes the first place among those that fork, or another if that stays taken.
#[cold]
#[inline(never)]
fn claim(me: usize, is_nested: bool) -> &'static Forking {
    let mut patience = Patience::new(SHORT_NS);
    let (mut waits, mut at) = (!is_nested, 0);
    while !FORKING[at].take(me) {
        waits = waits && patience.goes_on();
        if !waits {
            at = (at + 1) % FORKING.len();
            if at == 0 {
                time::nap();
            }
        }
    }
    if at != 0 {
        patience.charge();
    }
    &FORKING[at]
}

/// Whether the fork of the calling thread took locks.
pub fn took_locks() -> bool {
    place_of(tls::thread()).is_some_and(|place| place.took_locks.load(Ordering::Relaxed))
}

/// Ends a fork in the parent.
pub fn end_fork() {
    // A fork that began before the handlers were registered has none.
    let Some(place) = place_of(tls::thread()) else {
        return;
    };
    let found = place.found();
    place.thread.store(0, Ordering::Release);
    if GATE.open() {
        clean_up(found);
    }
}

fn clean_up(found: Found) {
    match found {
        // This thread is in the middle of a call: leave the work to the next GC pass of any thread.
        Found::Inside => deferred::leave_work(),
        _ => deferred::settle(),
    }
}

/// Ends a fork in the child, where only the calling thread exists.
pub fn end_fork_in_child() {
    let (found, crowd) = match place_of(tls::thread()) {
        Some(place) => (place.found(), place.crowd.load(Ordering::Relaxed)),
        None => (Found::Inside, 0),
    };
    places().for_each(|f| f.thread.store(0, Ordering::Relaxed));
    CROWD.reset(crowd);
    GATE.reset();
    PAGE_HEAPS.all().for_each(|heap| heap.after_fork());
    arena::manual::after_fork();
    background_state::after_fork();
    // Without other threads, no cache belonged to another thread.
    if !company::is_alone() {
        registry::after_fork();
        company::after_fork();
    }
    clean_up(found);
}

/// How often forks paused.
#[cfg(test)]
pub static PAUSES: AtomicU64 = AtomicU64::new(0);

/// Whether any thread is inside, as a fork sees it.
#[cfg(test)]
pub fn is_any_inside() -> bool {
    let seen = registry::find_inside(0);
    seen.is_some_and(|(others, _)| others) || CROWD.is_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_is_alone_knows_that_it_waits_for_itself() {
        crate::testing::own_process!();
        company::initialise(|| ());
        let forks = || {
            begin_fork(|_| false);
            let found = place_of(tls::thread()).map(Forking::found);
            end_fork();
            (found, PAUSES.swap(0, Ordering::Relaxed) != 0)
        };
        assert!(forks() == (Some(Found::Alone), false));
        // As a signal may find a thread: it has entered, and its depth does not say so yet.
        CROWD.enter();
        assert!(forks() == (Some(Found::Inside), false));
        let second = std::thread::spawn(company::expect_unless_first);
        assert!(second.join().is_ok());
        assert!(forks() == (Some(Found::Others), true));
        CROWD.leave();
        assert!(forks() == (Some(Found::Alone), false));
    }

    #[test]
    fn waits_have_a_common_account() {
        crate::testing::own_process!();
        let left = |max| {
            let patience = Patience::new(max);
            patience.end - patience.began
        };
        assert_eq!((left(LONG_NS), left(SHORT_NS)), (LONG_NS, SHORT_NS));
        let mut patience = Patience::new(LONG_NS);
        const LONG_AGO_NS: u64 = 1000 * LONG_NS;
        patience.began -= LONG_AGO_NS;
        patience.charge();
        assert_eq!((left(LONG_NS), left(SHORT_NS)), (0, 0));
        let mut patience = Patience::new(LONG_NS);
        let spins = (0..).take_while(|_| patience.goes_on()).count();
        assert_eq!(spins, SPINS as usize, "it spins, and does not nap");
    }
}
