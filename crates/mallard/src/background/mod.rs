//! The background thread: gives time its due in a process whose own threads sleep, or are to answer
//! without doing so.
//!
//! - `cache::keeper` holds whether it is wanted; [`start_if_wanted`] makes it, in a thread that
//!   came for memory and already has it. Never in one that frees: the C library frees while it
//!   holds the lock of its list of stacks, which making a thread takes.
//! - Each round (the heap's decay, the stores' idle blocks, caches that a fork left) tells when the
//!   next is due. It sleeps until then on the heap's bell, and without an end when nothing is left.
//!
//! It is a thread of the C library's, so that `setuid` and the like reach it; it takes no signals,
//! has no cache and never allocates. It makes no system call but those of `sys::mem` and
//! `sys::futex`, so that it lives in any sandbox that the program's own threads live in; for that
//! reason it has no name of its own either. `keeper` says when it leaves. The program can start and
//! end it ([`start_now`], [`stop`]). In the child of a fork it is gone, and made again when it is
//! wanted.

use crate::arena;
use crate::arena::subrelease::{self, Next};
use crate::cache::{counted, inside, keeper, life};
use crate::heap::{BELL, HEAP};
use crate::sys::bell::Sleep;
use crate::sys::errno::KeepErrno;
use crate::sys::{time, tls};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

/// Sizes of its stack that are tried: thread-local data lie there too, and can be large. Memory is
/// behind the pages that are touched alone, which are two or three.
const STACKS: [usize; 3] = [256 * 1024, 2 * 1024 * 1024, 16 * 1024 * 1024];
/// Milliseconds between looks at the stores: a quarter of the time that dirty pages stay, within
/// these.
const STORES_MS: (u64, u64) = (50, 1000);
/// Chunks whose slabs are looked at before a fork gets its turn.
const SLABS_CHUNKS: usize = 16;
/// Rounds in which the stores were empty until they are believed to be.
const QUIET_ROUNDS: u32 = 2;

/// Makes the thread if it is wanted. For a thread that holds no lock and is in the middle of
/// nothing; this may allocate.
#[inline]
pub fn start_if_wanted() {
    if keeper::is_wanted() {
        start();
    }
}

/// Makes the thread unless another makes it; false when the system or the C library refused.
#[cold]
#[inline(never)]
fn start() -> bool {
    if !keeper::claim() {
        return true;
    }
    let _keep = KeepErrno::new();
    life::expect_company();
    match STACKS.iter().find_map(|&stack| create(stack)) {
        Some(thread) => {
            keeper::made(thread);
            true
        }
        None => {
            keeper::refused();
            false
        }
    }
}

/// Allows the thread for good and makes it, for callers as of [`start_if_wanted`]. False when the
/// system or the C library refused.
pub fn start_now() -> bool {
    keeper::demand();
    start()
}

/// Ends the thread if it is there, waits until it is gone, and allows none from now on.
pub fn stop() {
    // Told each time: who allows the thread meanwhile has the last word.
    while !keeper::dismiss() {
        time::give_way();
    }
}

/// Makes the thread with a stack of that size; none when the system or the C library refused.
fn create(stack: usize) -> Option<libc::pthread_t> {
    let (mut own, mut none) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // What the C library allocates for the thread is not of the calling one's making.
    let _uncounted = counted::Uncounted::new();
    // SAFETY: every call gets what the ones before it initialised. The thread begins with all
    // signals blocked, so that no handler of the program's ever runs in it; those that tell of its
    // own faults (and of system calls that a filter traps) it could not survive blocked.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let attributes = attributes.as_mut_ptr();
        libc::sigfillset(none.as_mut_ptr());
        for signal in [
            libc::SIGSYS,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(none.as_mut_ptr(), signal);
        }
        let mut made = libc::pthread_attr_setstacksize(attributes, stack) == 0
            && libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), own.as_mut_ptr()) == 0;
        if made {
            made = libc::pthread_create(thread.as_mut_ptr(), attributes, run, null_mut()) == 0;
            libc::pthread_sigmask(libc::SIG_SETMASK, own.as_ptr(), null_mut());
        }
        libc::pthread_attr_destroy(attributes);
        made.then(|| thread.assume_init())
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // What the C library may free when this thread ends goes by an arena.
    tls::set(tls::address_of(&tls::ENDED));
    let mut rounds = Rounds::new();
    let mut sleep = Sleep::Light;
    loop {
        BELL.get_ready(sleep);
        if keeper::is_to_leave() {
            return null_mut();
        }
        keeper::begin_run();
        match rounds.round() {
            Some(at) => {
                let now = time::now_ms_exact();
                keeper::is_back_at(Some(at));
                if sleep == Sleep::Light {
                    BELL.sleep(sleep, Some(at.saturating_sub(now)));
                }
                sleep = Sleep::Light;
            }
            // Light sleepers do not hear all: look again, hearing all, before sleeping without end.
            None if sleep == Sleep::Light => sleep = Sleep::Deep,
            None => {
                keeper::is_back_at(None);
                BELL.sleep(sleep, None);
                rounds.disturbed();
                sleep = Sleep::Light;
            }
        }
    }
}

/// What the thread remembers from one round to the next.
struct Rounds {
    /// When the stores are looked at next.
    stores_at: u64,
    /// Looks at the stores that found them empty.
    quiet: u32,
}

impl Rounds {
    fn new() -> Self {
        Rounds {
            stores_at: 0,
            quiet: 0,
        }
    }

    /// Does what is due; tells when the next round is, none when nothing is left.
    fn round(&mut self) -> Option<u64> {
        let now = time::now_ms_exact();
        let stores = self.stores(now);
        let pages = {
            let _inside = inside::enter_or_wait();
            HEAP.attend()
        };
        let slabs = slabs(now);
        [stores, pages, slabs].into_iter().flatten().min()
    }

    /// After a sleep without end: the stores may hold something again.
    fn disturbed(&mut self) {
        self.quiet = 0;
        self.stores_at = time::now_ms_exact() + stores_ms();
        let _inside = inside::enter_or_wait();
        subrelease::expect();
    }

    fn stores(&mut self, now: u64) -> Option<u64> {
        if self.quiet < QUIET_ROUNDS && now >= self.stores_at {
            let _inside = inside::enter_or_wait();
            let any = arena::drain(false) | life::adopt_orphan();
            self.quiet = if any { 0 } else { self.quiet + 1 };
            self.stores_at = now + stores_ms();
        }
        (self.quiet < QUIET_ROUNDS).then_some(self.stores_at)
    }
}

/// Has memory of partly used slabs go back; tells when to see to that again, if there may be more.
fn slabs(now: u64) -> Option<u64> {
    loop {
        let _inside = inside::enter_or_wait();
        match subrelease::step(now, SLABS_CHUNKS) {
            Next::Now => {}
            Next::Later => return Some(now + stores_ms()),
            Next::Nothing => return None,
        }
    }
}

/// Milliseconds between two looks at the stores.
fn stores_ms() -> u64 {
    let (least, most) = STORES_MS;
    match HEAP.dirty_ms() {
        ..0 => most,
        ms => (ms as u64 / 4).clamp(least, most),
    }
}
