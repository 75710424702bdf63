//! Who gives time its due: the threads of the program at their slow events, or a thread of ours.
//!
//! The state alone is here, where the floors below the background thread can ask for it; the thread
//! itself is on the floor above (`background`). It is wanted once the process has threads of its
//! own and a heap worth a thread ([`consider`], at slow events), and made at the next request for
//! memory that leaves the fast path.
//!
//! It leaves when the last other thread but one ends, unless the options want it always, and when
//! the last one does. The thread that ends waits for that ([`thread_ended`]): so whoever joins it
//! finds a process without a thread of ours. What the thread of ours would have seen to later is
//! done then.
//!
//! The thread says by when it is going to be back. If it is not, because it gets no CPU, the
//! program's threads do its work meanwhile ([`attends`]).

use super::{inside, life};
use crate::arena;
use crate::class::PAGE;
use crate::heap::{BELL, HEAP};
use crate::sys::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use crate::sys::errno::KeepErrno;
use crate::sys::{cpu, time};

/// When a thread of ours is to do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    Never,
    /// Once the process has a second thread.
    Auto,
    /// Once there is something to do.
    Always,
}

/// A heap below this is not worth a thread where that is ours to decide.
const WORTH: usize = 1024 * 1024 / PAGE;
/// Milliseconds until a thread that the system refused is asked for again.
const REFUSED_MS: u64 = 5 * 60 * 1000;
/// A thread that left sooner after it was made did not pay: it is not made again for as long, and
/// for twice as long each time that it does not pay again, up to [`PAUSE_MS`]. Programs make and
/// join threads one by one.
const BRIEF_MS: u64 = 20;
const PAUSE_MS: u64 = 32 * BRIEF_MS;
/// For so long only a thread that may run where the process may makes it, then any.
const ORDINARY_MS: u64 = 1000;
/// So much later than it said the thread may be back.
const LATE_MS: u64 = 500;
/// Pages that may stay free in a process that is left with one thread.
const LEFT: usize = 4 * 1024 * 1024 / PAGE;

/// The program's threads do it.
const NOBODY: u8 = 0;
/// They do, and a thread for it is to be made.
const WANTED: u8 = 1;
/// One thread is making it.
const MAKING: u8 = 2;
/// It is there.
const THERE: u8 = 3;
/// It is to leave, and one thread waits until it has.
const LEAVING: u8 = 4;

static MODE: AtomicU8 = AtomicU8::new(Mode::Never as u8);
static STATE: AtomicU8 = AtomicU8::new(NOBODY);
/// Before this time no thread is to be made.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// How long it was not to be made after it last left.
static PAUSE: AtomicU64 = AtomicU64::new(0);
/// When one was wanted, and then when it was made.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// What the C library calls the thread; of use while it is there.
static THREAD: AtomicU64 = AtomicU64::new(0);
/// When the thread is late; [`NEVER`] while it sleeps until it is rung for.
static LATE: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;

pub fn configure(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

fn is_auto() -> bool {
    MODE.load(Ordering::Relaxed) == Mode::Auto as u8
}

/// Whether there may be a thread of ours.
pub fn is_allowed() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Never as u8
}

/// Has a thread made whether or not one seems worth it, by whoever claims it.
pub fn demand() {
    configure(Mode::Always);
    SINCE.store(0, Ordering::Relaxed);
    change(NOBODY, WANTED);
}

/// Forbids the thread, and waits until one that is there has left; tells whether there is none, nor
/// one being made.
pub fn dismiss() -> bool {
    configure(Mode::Never);
    change(WANTED, NOBODY);
    send_away();
    STATE.load(Ordering::Relaxed) == NOBODY
}

/// Whether a thread of ours is there for it.
pub fn is_there() -> bool {
    STATE.load(Ordering::Relaxed) == THERE
}

/// Whether a thread of ours is there for it and gets to it.
pub(super) fn attends() -> bool {
    is_there() && !is_late()
}

fn is_late() -> bool {
    let late = LATE.load(Ordering::Relaxed);
    if late == NEVER {
        if !BELL.is_rung() {
            return false;
        }
        // It was rung for: the time runs.
        let by = time::now_ms() + LATE_MS;
        let _ = LATE.compare_exchange(NEVER, by, Ordering::Relaxed, Ordering::Relaxed);
        return false;
    }
    time::now_ms() > late
}

/// The thread works, and then sleeps until that time, or until it is rung for.
pub fn is_back_at(at: Option<u64>) {
    LATE.store(at.map_or(NEVER, |at| at + LATE_MS), Ordering::Relaxed);
}

/// Whether one is to be made.
#[inline]
pub fn is_wanted() -> bool {
    STATE.load(Ordering::Relaxed) == WANTED
}

/// Thinks about having one made.
pub(super) fn consider() {
    let mode = MODE.load(Ordering::Relaxed);
    if mode == Mode::Never as u8 || STATE.load(Ordering::Relaxed) != NOBODY {
        return;
    }
    let allowed = mode == Mode::Always as u8 || life::threads() >= 2 && holds() >= WORTH;
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
        change(NOBODY, WANTED);
    }
}

/// Pages whose memory is there, whoever's they are.
fn holds() -> usize {
    let totals = HEAP.totals();
    totals.used + totals.dirty + totals.muzzy
}

fn change(from: u8, to: u8) -> bool {
    STATE
        .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

/// Tells one caller, when a thread is wanted, that it is the one to make it. The thread will have
/// the CPUs of its maker. So one that was held to some of them leaves it to others, for a while.
pub fn claim() -> bool {
    let waited = || time::now_ms().saturating_sub(SINCE.load(Ordering::Relaxed));
    is_wanted() && (cpu::is_free() || waited() >= ORDINARY_MS) && change(WANTED, MAKING)
}

/// The thread that was claimed could not be made.
pub fn refused() {
    NOT_BEFORE.store(time::now_ms() + REFUSED_MS, Ordering::Relaxed);
    change(MAKING, NOBODY);
}

/// The thread that was claimed was made.
pub fn made(thread: libc::pthread_t) {
    let now = time::now_ms();
    SINCE.store(now, Ordering::Relaxed);
    LAST_RUN_NS.store(0, Ordering::Relaxed);
    is_back_at(Some(now));
    THREAD.store(thread, Ordering::Relaxed);
    STATE.store(THERE, Ordering::Release);
    // Who ended meanwhile left it to us.
    fence(Ordering::SeqCst);
    if is_auto() && life::threads() < 2 || !is_allowed() {
        send_away();
    }
}

/// For the thread: whether it has been told to leave. It is ready to be rung for.
pub fn is_to_leave() -> bool {
    fence(Ordering::SeqCst);
    loop {
        match STATE.load(Ordering::Relaxed) {
            MAKING => time::give_way(),
            state => return state != THERE,
        }
    }
}

/// A thread with a cache has ended, and that many are left: the last but one takes ours along.
pub(super) fn thread_ended(left: u32) {
    if left > 1 || left == 1 && !is_auto() {
        return;
    }
    change(WANTED, NOBODY);
    fence(Ordering::SeqCst);
    if is_there() {
        leave_together();
    }
}

#[cold]
#[inline(never)]
fn leave_together() {
    if send_away() && holds_free() > LEFT && HEAP.dirty_ms() >= 0 {
        let Some(_inside) = inside::enter() else {
            return;
        };
        arena::drain(true);
        HEAP.purge_all();
    }
}

/// Pages that are nobody's and have memory.
fn holds_free() -> usize {
    let totals = HEAP.totals();
    totals.dirty + totals.muzzy
}

/// Tells the thread to leave, if it is there, and waits until the kernel has no such thread any
/// more.
fn send_away() -> bool {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
    }
    const DISABLE: i32 = 1;
    if STATE
        .compare_exchange(THERE, LEAVING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    // The thread gets ready to be rung for before it looks at the state.
    fence(Ordering::SeqCst);
    BELL.ring();
    let _keep = KeepErrno::new();
    let mut own = 0;
    // SAFETY: the thread can be joined, and who changed the state is the only one to do so. It is
    // no place where the caller may be cancelled.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut own);
        libc::pthread_join(THREAD.load(Ordering::Relaxed), core::ptr::null_mut());
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
    STATE.store(NOBODY, Ordering::Release);
    if !is_auto() && is_allowed() {
        // Wanted again before it had left.
        demand();
    }
    true
}

/// Rounds of the thread, the time between them in all, and when the last one began; the thread
/// alone writes them.
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

/// How many rounds there were, and the mean time from one to the next in nanoseconds.
pub fn runs() -> (u64, u64) {
    let runs = RUNS.load(Ordering::Relaxed);
    let between = BETWEEN_NS.load(Ordering::Relaxed);
    (runs, between.checked_div(runs).unwrap_or(0))
}

/// In the child of a fork, which has no such thread.
pub fn after_fork() {
    NOT_BEFORE.store(0, Ordering::Relaxed);
    BELL.leave();
    STATE.store(NOBODY, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    #[test]
    fn a_thread_that_is_late_is_not_waited_for() {
        let _alone = alone();
        assert!(!attends(), "there is none");
        STATE.store(THERE, Ordering::Relaxed);
        is_back_at(Some(time::now_ms()));
        assert!(attends());
        is_back_at(Some(time::now_ms() - LATE_MS - 1));
        assert!(!attends());
        // Rung for, it has as long to come.
        is_back_at(None);
        BELL.leave();
        assert!(attends() && LATE.load(Ordering::Relaxed) != NEVER);
        LATE.store(NEVER, Ordering::Relaxed);
        STATE.store(NOBODY, Ordering::Relaxed);
    }
}
