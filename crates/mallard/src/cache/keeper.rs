//! Who gives time its due: the threads of the program at their slow events, or a thread of ours.
//!
//! The state alone is here, where the floors below the background thread can ask for it; the thread
//! itself is on the floor above (`background`). It is wanted once the process has threads of its own
//! and a heap worth a thread ([`consider`], at slow events), made at the next request for memory that
//! leaves the fast path, and gone again when the process has one thread left and nothing to return.

use super::life;
use crate::class::PAGE;
use crate::heap::{BELL, HEAP};
use crate::sys::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sys::time;

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

/// The program's threads do it.
const NOBODY: u8 = 0;
/// They do, and a thread for it is to be made.
const WANTED: u8 = 1;
/// One thread is making it.
const MAKING: u8 = 2;
/// It is there.
const THERE: u8 = 3;

static MODE: AtomicU8 = AtomicU8::new(Mode::Never as u8);
static STATE: AtomicU8 = AtomicU8::new(NOBODY);
/// Before this time no thread is to be made.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);

pub fn configure(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

pub fn is_always() -> bool {
    MODE.load(Ordering::Relaxed) == Mode::Always as u8
}

/// Whether there may be a thread of ours.
pub fn is_allowed() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Never as u8
}

/// Has a thread made whether or not one seems worth it, by whoever claims it.
pub fn demand() {
    configure(Mode::Always);
    change(NOBODY, WANTED);
}

/// Forbids the thread, and asks one that is there to leave; tells whether there is none, nor one being
/// made.
pub fn dismiss() -> bool {
    configure(Mode::Never);
    change(WANTED, NOBODY);
    BELL.ring();
    STATE.load(Ordering::Relaxed) == NOBODY
}

/// Whether a thread of ours is there for it.
pub fn is_there() -> bool {
    STATE.load(Ordering::Relaxed) == THERE
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
    if time::now_ms() >= NOT_BEFORE.load(Ordering::Relaxed) {
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

/// Tells one caller, when a thread is wanted, that it is the one to make it.
pub fn claim() -> bool {
    change(WANTED, MAKING)
}

/// The thread that was claimed could not be made.
pub fn refused() {
    NOT_BEFORE.store(time::now_ms() + REFUSED_MS, Ordering::Relaxed);
    change(MAKING, NOBODY);
}

/// The thread has arrived.
pub fn arrive() {
    LAST_RUN_NS.store(0, Ordering::Relaxed);
    change(MAKING, THERE);
}

/// Rounds of the thread, the time between them in all, and when the last one began; the thread alone
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

/// How many rounds there were, and the mean time from one to the next in nanoseconds.
pub fn runs() -> (u64, u64) {
    let runs = RUNS.load(Ordering::Relaxed);
    let between = BETWEEN_NS.load(Ordering::Relaxed);
    (runs, between.checked_div(runs).unwrap_or(0))
}

/// The thread leaves, or was left behind by a fork.
pub fn leave() {
    STATE.store(NOBODY, Ordering::Relaxed);
    BELL.leave();
}

/// A slow event of a thread while the keeper is there: the caches and stores have changed.
pub(super) fn tell() {
    if life::threads() == 0 {
        // The last thread ends: the process must not wait for ours.
        BELL.ring();
    } else {
        BELL.ring_if_deep();
    }
}
