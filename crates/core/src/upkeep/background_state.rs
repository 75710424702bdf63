//! The state of the background thread, which runs decay instead of the program's threads.
//!
//! Only the state is here, where the caches can use it; the thread itself is in a layer above them
//! (`background`). It is wanted once the process has several threads
//! and a heap worth a thread ([`consider`], at slow events), and it is made at the next request for
//! memory that leaves the fast path.
//!
//! It stops when the process is down to one thread with a cache, or, if the options always want it,
//! when the last one ends. The thread that ends waits for that ([`thread_ended`]), so that a
//! program that has joined its threads finds none of ours left. The work that was left to it is
//! done then.
//!
//! The background thread announces when it will be back. If it is late, because it gets no CPU, the
//! program's threads do its work meanwhile ([`attends`]).

use super::threads;
use crate::heap::{BELL, PAGE_HEAPS};
use crate::sys::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::helper::Helper;
use crate::sys::page::PAGE;
use crate::sys::signals::Blocked;
use crate::sys::{cpu, time, tls};

/// When to have a background thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    Never,
    /// Once the process has a second thread.
    Auto,
    /// Once there is something to do.
    Always,
}

/// A smaller heap is not worth a thread, unless the options demand one.
const WORTH_PAGES: usize = 1024 * 1024 / PAGE;
/// Milliseconds before the next try to make a thread, after the system refused one.
const REFUSED_MS: u64 = 5 * 60 * 1000;
/// A thread that stopped within this time did not pay. It is not made again for as long, and for
/// twice as long each time that it does not pay again, up to [`PAUSE_MS`]: programs may make and
/// join threads one by one.
const BRIEF_MS: u64 = 20;
const PAUSE_MS: u64 = 32 * BRIEF_MS;
/// For this long only a thread with all of the process's CPUs may make it, then any.
const ORDINARY_MS: u64 = 1000;
/// How long after the announced time the thread is late.
const LATE_MS: u64 = 500;
/// Pages that may stay free in a process that is down to one thread.
const LEFT_PAGES: usize = 4 * 1024 * 1024 / PAGE;

static MODE: AtomicU8 = AtomicU8::new(Mode::Never as u8);
/// Whether there is a background thread. If there is none, the program's threads do its work.
static HELPER: Helper = Helper::new();
/// No thread is made before this time.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// The pause before it could be made again, as of its last stop.
static PAUSE: AtomicU64 = AtomicU64::new(0);
/// When it was wanted, and later when it was made.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// When the thread becomes late; [`NEVER`] while it sleeps until the bell rings.
static LATE: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;

pub fn configure(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

fn is_auto() -> bool {
    MODE.load(Ordering::Relaxed) == Mode::Auto as u8
}

/// Whether the options allow a background thread.
pub fn is_allowed() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Never as u8
}

/// Wants a thread whether or not it seems worth it; the next caller of [`claim`] makes it.
pub fn demand() {
    configure(Mode::Always);
    SINCE.store(0, Ordering::Relaxed);
    HELPER.want();
}

/// Forbids the thread, and stops the one that exists. Returns whether there is none, and none is
/// being made.
pub fn dismiss() -> bool {
    configure(Mode::Never);
    if HELPER.withdraw() {
        send_away();
    }
    HELPER.is_none()
}

/// Whether the background thread exists.
pub fn is_there() -> bool {
    HELPER.is_there()
}

/// Whether the background thread exists and is not late.
pub(super) fn attends() -> bool {
    is_there() && !is_late()
}

fn is_late() -> bool {
    let late = LATE.load(Ordering::Relaxed);
    if late == NEVER {
        if !BELL.is_rung() {
            return false;
        }
        // The bell has rung: its time runs from here.
        let by = time::now_ms() + LATE_MS;
        let _ = LATE.compare_exchange(NEVER, by, Ordering::Relaxed, Ordering::Relaxed);
        return false;
    }
    time::now_ms() > late
}

/// The thread works now, then sleeps until `at`, or until the bell rings if there is no time.
pub fn is_back_at(at: Option<u64>) {
    LATE.store(at.map_or(NEVER, |at| at + LATE_MS), Ordering::Relaxed);
}

/// Whether a background thread should be made.
#[inline]
pub fn is_wanted() -> bool {
    HELPER.is_wanted()
}

/// Decides whether a background thread is wanted.
pub fn consider() {
    let mode = MODE.load(Ordering::Relaxed);
    if mode == Mode::Never as u8 || !HELPER.is_none() {
        return;
    }
    let allowed = mode == Mode::Always as u8 || threads::count() >= 2 && holds() >= WORTH_PAGES;
    if allowed {
        want();
    }
}

#[cold]
#[inline(never)]
fn want() {
    let now = time::now_ms();
    if now >= NOT_BEFORE.load(Ordering::Relaxed) {
        SINCE.store(now, Ordering::Relaxed);
        HELPER.want();
    }
}

/// Pages with memory, in use or not.
fn holds() -> usize {
    let totals = PAGE_HEAPS.totals();
    totals.used + totals.dirty + totals.muzzy
}

/// Returns true to one caller when a thread is wanted: that caller must make it. The thread
/// inherits the CPUs of its maker, so a caller that is bound to some of them leaves this to others
/// for a while. A caller whose cache has ended leaves this to others for good: if it is the last
/// thread, and a destructor of it allocates, nothing would stop the background thread, and the
/// process would never end.
pub fn claim() -> bool {
    let waited = || time::now_ms().saturating_sub(SINCE.load(Ordering::Relaxed));
    let has_ended = || tls::get() == tls::address_of(&tls::ENDED);
    is_wanted() && !has_ended() && (cpu::is_free() || waited() >= ORDINARY_MS) && HELPER.claim()
}

/// The claimed thread could not be made.
pub fn refused() {
    NOT_BEFORE.store(time::now_ms() + REFUSED_MS, Ordering::Relaxed);
    HELPER.refused();
}

/// The claimed thread was made.
pub fn made(thread: libc::pthread_t) {
    let now = time::now_ms();
    SINCE.store(now, Ordering::Relaxed);
    LAST_RUN_NS.store(0, Ordering::Relaxed);
    is_back_at(Some(now));
    // A pointer on musl.
    #[allow(clippy::unnecessary_cast)]
    HELPER.made(thread as u64);
    // A thread that ended meanwhile left the check to us.
    if is_auto() && threads::count() < 2 || !is_allowed() {
        send_away();
    }
}

/// Called by the background thread, which the bell can already reach: whether it has to stop.
pub fn is_to_leave() -> bool {
    HELPER.is_to_leave()
}

/// The background thread does nothing more.
pub fn has_left() {
    HELPER.has_left();
}

/// A thread with a cache has ended, and `left` remain: at one, the background thread stops too.
/// Returns whether it stopped and leaves much to return: the caller, once inside, has to give all.
pub fn thread_ended(left: u32) -> bool {
    if left > 1 || left == 1 && !is_auto() {
        return false;
    }
    HELPER.withdraw() && leave_together()
}

#[cold]
#[inline(never)]
fn leave_together() -> bool {
    send_away() && holds_free() > LEFT_PAGES && PAGE_HEAPS.dirty_ms() >= 0
}

/// Pages that are free and have memory.
fn holds_free() -> usize {
    let totals = PAGE_HEAPS.totals();
    totals.dirty + totals.muzzy
}

/// Stops the background thread, if it exists, and waits until it has ended in the kernel too.
/// Returns whether it did.
///
/// A signal handler may fork while this waits. The child has no such thread, and not every C
/// library ends a join there. So the wait is for a word of ours, which the fork sets as well. The
/// thread is joined once it does nothing more. That takes a moment, in which no handler runs.
fn send_away() -> bool {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
    }
    const DISABLE: i32 = 1;
    let Some(leaving) = HELPER.stop() else {
        return false;
    };
    BELL.ring();
    let _keep = KeepErrno::new();
    HELPER.wait(&leaving);
    let blocked = Blocked::new();
    if !HELPER.is_waited_for(&leaving) {
        return false;
    }
    let mut own = 0;
    #[allow(clippy::unnecessary_cast)]
    let thread = leaving.thread as libc::pthread_t;
    // SAFETY: the thread can be joined, and only the caller that changed the state joins it.
    // Cancellation is disabled because the join is a cancellation point.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut own);
        libc::pthread_join(thread, core::ptr::null_mut());
        pthread_setcancelstate(own, core::ptr::null_mut());
    }
    let now = time::now_ms();
    let brief = now.saturating_sub(SINCE.load(Ordering::Relaxed)) < BRIEF_MS;
    let pause = match PAUSE.load(Ordering::Relaxed) {
        _ if !brief => 0,
        0 => BRIEF_MS,
        last => PAUSE_MS.min(2 * last),
    };
    PAUSE.store(pause, Ordering::Relaxed);
    NOT_BEFORE.store(now + pause, Ordering::Relaxed);
    BELL.leave();
    HELPER.stopped();
    drop(blocked);
    if !is_auto() && is_allowed() {
        // It was wanted again before it had stopped.
        demand();
    }
    true
}

/// The thread's rounds, the total time between them, and the start of the last; only the thread
/// writes them.
static RUNS: AtomicU64 = AtomicU64::new(0);
static BETWEEN_NS: AtomicU64 = AtomicU64::new(0);
static LAST_RUN_NS: AtomicU64 = AtomicU64::new(0);

/// The thread begins a round.
pub fn begin_run() {
    let (now, last) = (time::now_ns(), LAST_RUN_NS.load(Ordering::Relaxed));
    if last != 0 {
        BETWEEN_NS.fetch_add(now.saturating_sub(last), Ordering::Relaxed);
    }
    LAST_RUN_NS.store(now, Ordering::Relaxed);
    RUNS.fetch_add(1, Ordering::Relaxed);
}

/// The number of rounds, and the mean time from one to the next in nanoseconds.
pub fn runs() -> (u64, u64) {
    let runs = RUNS.load(Ordering::Relaxed);
    let between = BETWEEN_NS.load(Ordering::Relaxed);
    (runs, between.checked_div(runs).unwrap_or(0))
}

/// In the child of a fork, which has no background thread.
pub fn after_fork() {
    NOT_BEFORE.store(0, Ordering::Relaxed);
    BELL.leave();
    HELPER.after_fork();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    #[test]
    fn a_thread_that_is_late_is_not_waited_for() {
        let _alone = alone();
        assert!(!attends(), "there is none");
        HELPER.want();
        assert!(HELPER.claim());
        HELPER.made(0);
        const AGES_MS: u64 = 24 * 60 * 60 * 1000;
        is_back_at(Some(time::now_ms() + AGES_MS));
        assert!(attends());
        is_back_at(Some(time::now_ms() - LATE_MS - 1));
        assert!(!attends());
        // Once the bell has rung, it has the same time to come.
        is_back_at(None);
        BELL.leave();
        assert!(attends() && LATE.load(Ordering::Relaxed) != NEVER);
        LATE.store(NEVER, Ordering::Relaxed);
        HELPER.after_fork();
    }
}
