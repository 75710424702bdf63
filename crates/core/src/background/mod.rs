//! The background thread: it runs decay in processes whose own threads are idle, or must not be
//! delayed by it.
//!
//! - `upkeep::background_state` decides whether the thread is wanted. [`start_if_wanted`] creates
//!   it, from a thread that has just been given the memory it asked for. It is never created from a
//!   thread that frees: the C library frees while it holds the lock of its list of stacks, which
//!   creating a thread takes.
//! - Each round (decay of the heap, idle blocks in the transfer caches, caches orphaned by a fork,
//!   the page of statistics) returns when the next one is due. The thread sleeps until then on the
//!   heap's bell, or without a deadline if nothing is left to do.
//!
//! The thread is created through the C library, so that `setuid` and similar calls reach it. It
//! takes no signals, has no cache and never allocates. Its only system calls are those of
//! `sys::mem` and `sys::futex`, so it can live in any sandbox that the program's own threads live
//! in; for the same reason it has no name. `background_state` decides when it exits. The program
//! can start and stop it ([`start_now`], [`stop`]). The child of a fork does not have the thread,
//! and creates it again when it is wanted.

use crate::arena;
use crate::arena::subrelease::{self, Next};
use crate::cache::{company, counted, deferred, inside};
use crate::heap::{BELL, PAGE_HEAPS};
use crate::stats;
use crate::sys::bell::Sleep;
use crate::sys::errno::KeepErrno;
use crate::sys::signals::Blocked;
use crate::sys::{time, tls};
use crate::upkeep::background_state;
use crate::upkeep::export;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

/// Stack sizes to try: thread-local data lies on the stack too and can be large. Only the two or
/// three pages that are touched have memory behind them.
const STACKS: [usize; 3] = [256 * 1024, 2 * 1024 * 1024, 16 * 1024 * 1024];
/// Bounds on the milliseconds between two checks of the transfer caches, which are otherwise a
/// quarter of the dirty decay time.
const TRANSFER_CHECK_MS: (u64, u64) = (50, 1000);
/// Chunks whose slabs are scanned before a waiting fork gets its turn.
const SLABS_CHUNKS: usize = 16;
/// Consecutive rounds that must find the transfer caches empty before they are taken to be empty.
const QUIET_ROUNDS: u32 = 2;

/// Creates the thread if it is wanted. The caller holds no lock and is not in the middle of an
/// operation; this may allocate.
#[inline]
pub fn start_if_wanted() {
    if background_state::is_wanted() {
        start();
    }
}

/// Creates the thread unless another thread is doing so; false when the system or the C library
/// refused.
#[cold]
#[inline(never)]
fn start() -> bool {
    if !background_state::claim() {
        return true;
    }
    let _keep = KeepErrno::new();
    company::expect();
    match create(run, null_mut()) {
        Some(thread) => {
            background_state::made(thread);
            true
        }
        None => {
            background_state::refused();
            false
        }
    }
}

/// Allows the thread for good and creates it. Callers must meet the conditions of
/// [`start_if_wanted`]. Returns false when the system or the C library refused.
pub fn start_now() -> bool {
    background_state::demand();
    start()
}

/// Stops the thread if it runs, waits until it is gone, and allows none from now on.
pub fn stop() {
    // Repeated until it takes effect: if another thread allows it again meanwhile, the last call
    // wins.
    while !background_state::dismiss() {
        time::give_way();
    }
}

/// The function that a thread of this library runs.
type Run = extern "C" fn(*mut c_void) -> *mut c_void;

/// Creates a thread that takes no signals; `None` when the system or the C library refused.
pub fn create(run: Run, argument: *mut c_void) -> Option<libc::pthread_t> {
    STACKS
        .iter()
        .find_map(|&stack| create_with(stack, run, argument))
}

/// Creates a thread as [`create`] does, with a stack of `stack` bytes.
fn create_with(stack: usize, run: Run, argument: *mut c_void) -> Option<libc::pthread_t> {
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // The C library's allocations for the new thread do not count for the calling thread.
    let _uncounted = counted::Uncounted::new();
    // SAFETY: each call gets what the calls before it initialised. The thread starts with signals
    // blocked, so no signal handler of the program ever runs in it, except those for its own
    // faults.
    unsafe {
        if asked!(Thread or libc::ENOMEM, libc::pthread_attr_init(attributes.as_mut_ptr())) != 0 {
            return None;
        }
        let attributes = attributes.as_mut_ptr();
        let made = asked!(
            Thread or libc::EINVAL,
            libc::pthread_attr_setstacksize(attributes, stack)
        ) == 0
            && Blocked::new().is_some_and(|_blocked| {
                let made = asked!(
                    Thread or libc::EAGAIN,
                    libc::pthread_create(thread.as_mut_ptr(), attributes, run, argument)
                );
                made == 0
            });
        libc::pthread_attr_destroy(attributes);
        made.then(|| thread.assume_init())
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // Blocks that the C library frees when this thread ends then go straight to an arena.
    tls::set(tls::address_of(&tls::ENDED));
    let mut rounds = Rounds::new();
    let mut sleep = Sleep::Light;
    loop {
        BELL.get_ready(sleep);
        if background_state::is_to_leave() {
            background_state::has_left();
            return null_mut();
        }
        background_state::begin_run();
        match rounds.round() {
            Some(at) => {
                let now = time::now_ms_exact();
                background_state::is_back_at(Some(at));
                if sleep == Sleep::Light {
                    BELL.sleep(sleep, Some(at.saturating_sub(now)));
                }
                sleep = Sleep::Light;
            }
            // A light sleeper misses some news: check again as a deep sleeper before sleeping
            // without a deadline.
            None if sleep == Sleep::Light => sleep = Sleep::Deep,
            None => {
                background_state::is_back_at(None);
                BELL.sleep(sleep, None);
                rounds.disturbed();
                sleep = Sleep::Light;
            }
        }
    }
}

/// State that the thread keeps between rounds.
struct Rounds {
    /// When to check the transfer caches next.
    transfer_check_at: u64,
    /// Consecutive checks that found the transfer caches empty.
    quiet: u32,
    /// Whether the page of statistics may be out of date.
    stale: bool,
}

impl Rounds {
    fn new() -> Self {
        Rounds {
            transfer_check_at: 0,
            quiet: 0,
            stale: true,
        }
    }

    /// Does what is due; returns when the next round is due, or `None` if nothing is left.
    fn round(&mut self) -> Option<u64> {
        let now = time::now_ms_exact();
        let stores = self.transfer_caches(now);
        let pages = {
            let _inside = inside::enter_or_wait();
            PAGE_HEAPS.attend()
        };
        let slabs = slabs(now);
        let page = self.page();
        [stores, pages, slabs, page].into_iter().flatten().min()
    }

    /// Called after a sleep without a deadline: the transfer caches may hold something again.
    fn disturbed(&mut self) {
        self.quiet = 0;
        self.stale = true;
        self.transfer_check_at = time::now_ms_exact() + transfer_check_ms();
        let _inside = inside::enter_or_wait();
        subrelease::expect();
    }

    /// Publishes the page of statistics if that is due; returns when it is due next. An idle
    /// process publishes nothing.
    fn page(&mut self) -> Option<u64> {
        export::page()?;
        if self.stale && export::is_time() {
            self.stale = stats::page::publish();
        }
        self.stale.then(export::next)
    }

    fn transfer_caches(&mut self, now: u64) -> Option<u64> {
        if self.quiet < QUIET_ROUNDS && now >= self.transfer_check_at {
            let _inside = inside::enter_or_wait();
            let any = arena::drain(arena::Drain::Idle) | deferred::adopt_orphan();
            self.quiet = if any { 0 } else { self.quiet + 1 };
            self.transfer_check_at = now + transfer_check_ms();
        }
        (self.quiet < QUIET_ROUNDS).then_some(self.transfer_check_at)
    }
}

/// Returns memory of partly used slabs; the result is when to do so again, if there may be more.
fn slabs(now: u64) -> Option<u64> {
    loop {
        let _inside = inside::enter_or_wait();
        match subrelease::step(now, SLABS_CHUNKS, u32::MAX) {
            Next::Now => {}
            Next::Later => return Some(now + transfer_check_ms()),
            Next::Nothing => return None,
        }
    }
}

/// Milliseconds between two checks of the transfer caches.
fn transfer_check_ms() -> u64 {
    let (min, max) = TRANSFER_CHECK_MS;
    match PAGE_HEAPS.dirty_ms() {
        ..0 => max,
        ms => (ms as u64 / 4).clamp(min, max),
    }
}
