//! The background thread: gives time its due in a process whose own threads sleep, or are to answer
//! without doing so.
//!
//! - `cache::keeper` holds whether it is wanted; [`start_if_wanted`] makes it, in a thread that came
//!   for memory and already has it. Never in one that frees: the C library frees while it holds the
//!   lock of its list of stacks, which making a thread takes.
//! - Each round (the heap's decay, the stores' idle blocks, caches that a fork left) tells when the next
//!   is due. It sleeps until then on the heap's bell, and without an end when nothing is left.
//! - `pressure` asks the kernel whether the machine is short of memory: then all goes back at once.
//!
//! It is a thread of the C library's, so that `setuid` and the like reach it; it is detached, takes no
//! signals, has no cache and never allocates. It ends when the process has no other thread (which
//! may wait for it to end), and, unless the options want it always, when there is one other thread
//! and nothing to return: a process that has become single-threaded is so for the kernel too. The program
//! can start and end it ([`start_now`], [`stop`]). In the
//! child of a fork it is gone, and made again when it is wanted.

mod pressure;

use crate::arena;
use crate::arena::subrelease::{self, Next};
use crate::cache::{counted, keeper, life};
use crate::class::PAGE;
use crate::heap::{BELL, HEAP};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::bell::Sleep;
use crate::sys::errno::KeepErrno;
use crate::sys::label::Named;
use crate::sys::{time, tls};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use pressure::Pressure;

/// Sizes of its stack that are tried: thread-local data lie there too, and can be large. Memory is
/// behind the pages that are touched alone, which are two or three. It is not the smallest possible,
/// because the end of a program may run on it (see above), with all its handlers.
const STACKS: [usize; 3] = [256 * 1024, 2 * 1024 * 1024, 16 * 1024 * 1024];
/// Milliseconds between looks at the stores: a quarter of the time that dirty pages stay, within these.
const STORES_MS: (u64, u64) = (50, 1000);
/// Chunks whose slabs are looked at before a fork gets its turn.
const SLABS_CHUNKS: usize = 16;
/// Rounds in which the stores were empty until they are believed to be.
const QUIET_ROUNDS: u32 = 2;
/// Pages for whose sake the kernel is asked how short of memory it is, and how often, in milliseconds.
const PRESSING: usize = 16 * 1024 * 1024 / PAGE;
const PRESSURE_MS: u64 = 1000;

/// Makes the thread if it is wanted. For a thread that holds no lock and is in the middle of nothing;
/// this may allocate.
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
    let made = STACKS.iter().any(|&stack| create(stack));
    if !made {
        keeper::refused();
    }
    made
}

/// Allows the thread for good and makes it, for callers as of [`start_if_wanted`]. False when the
/// system or the C library refused.
pub fn start_now() -> bool {
    keeper::demand();
    start()
}

/// Ends the thread if it is there, waits until it is gone, and allows none from now on.
pub fn stop() {
    let _keep = KeepErrno::new();
    // Told each time, for it may have looked just before it was first told; and who allows the thread
    // meanwhile has the last word.
    while !keeper::dismiss() {
        nap();
    }
    // It has said that it leaves: the C library is about to end it.
    let mut naps = 0;
    let thread = THREAD.swap(0, Ordering::Relaxed);
    while is_alive(thread) && naps < FAREWELL {
        nap();
        naps += 1;
    }
}

/// The number in the system of the thread, if it is there or was told to leave; else 0.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// How often it is looked whether a thread that leaves is gone: for a second at most.
const FAREWELL: u32 = 10_000;

/// Lets some time pass, so little that nobody minds.
fn nap() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    let rest = null_mut::<libc::timespec>();
    // SAFETY: the time is valid, and what is left of it is not asked for. Not by the C library, where a
    // thread can be cancelled in its sleep.
    unsafe { libc::syscall(libc::SYS_nanosleep, &time, rest) };
}

fn is_alive(thread: u32) -> bool {
    // SAFETY: no signal is sent: it is only asked whether one could be.
    thread != 0 && unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) } == 0
}

/// Makes the thread with a stack of that size; false when the system or the C library refused.
fn create(stack: usize) -> bool {
    let (mut own, mut none) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // What the C library allocates for the thread is not of the calling one's making.
    let _uncounted = counted::Uncounted::new();
    // SAFETY: every call gets what the ones before it initialised. The thread begins with all signals
    // blocked, so that no handler of the program's ever runs in it; those that tell of its own faults
    // (and of system calls that a filter traps) it could not survive blocked.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
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
            && libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED) == 0
            && libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), own.as_mut_ptr()) == 0;
        if made {
            made = libc::pthread_create(thread.as_mut_ptr(), attributes, run, null_mut()) == 0;
            libc::pthread_sigmask(libc::SIG_SETMASK, own.as_ptr(), null_mut());
        }
        libc::pthread_attr_destroy(attributes);
        made
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // What the C library may free when this thread ends goes by an arena.
    tls::set(tls::address_of(&tls::ENDED));
    static NAME: Named<8> = Named::of(c"mallard");
    // SAFETY: the name is a C string of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.get().as_ptr()) };
    // SAFETY: asks for a number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    THREAD.store(thread as u32, Ordering::Relaxed);
    keeper::arrive();
    let mut rounds = Rounds::new();
    let mut sleep = Sleep::Light;
    let dismissed = loop {
        BELL.get_ready(sleep);
        if !keeper::is_allowed() {
            break true;
        }
        // Counted first: what the threads that ended gave back is in the round.
        let others = life::threads();
        keeper::begin_run();
        let next = rounds.round();
        if others == 0 || others == 1 && next.is_none() && !keeper::is_always() {
            break false;
        }
        match next {
            Some(at) => {
                let now = time::now_ms_exact();
                if sleep == Sleep::Light {
                    BELL.sleep(sleep, Some(at.saturating_sub(now)));
                }
                sleep = Sleep::Light;
            }
            // Light sleepers do not hear all: look again, hearing all, before sleeping without end.
            None if sleep == Sleep::Light => sleep = Sleep::Deep,
            None => {
                BELL.sleep(sleep, None);
                rounds.disturbed();
                sleep = Sleep::Light;
            }
        }
    };
    if !dismissed {
        THREAD.store(0, Ordering::Relaxed);
    }
    keeper::leave();
    if dismissed && keeper::is_always() {
        // Wanted again before it had left.
        keeper::demand();
    }
    null_mut()
}

/// What the thread remembers from one round to the next.
struct Rounds {
    /// When the stores are looked at next.
    stores_at: u64,
    /// Looks at the stores that found them empty.
    quiet: u32,
    pressure: Pressure,
    pressure_at: u64,
}

impl Rounds {
    fn new() -> Self {
        Rounds {
            stores_at: 0,
            quiet: 0,
            pressure: Pressure::new(),
            pressure_at: 0,
        }
    }

    /// Does what is due; tells when the next round is, none when nothing is left.
    fn round(&mut self) -> Option<u64> {
        let now = time::now_ms_exact();
        let stores = self.stores(now);
        let pages = HEAP.attend();
        let slabs = slabs(now);
        let pressure = pages.and_then(|_| self.look_for_pressure(now));
        [stores, pages, slabs, pressure].into_iter().flatten().min()
    }

    /// After a sleep without end: the stores may hold something again.
    fn disturbed(&mut self) {
        self.quiet = 0;
        self.stores_at = time::now_ms_exact() + stores_ms();
        subrelease::expect();
    }

    fn stores(&mut self, now: u64) -> Option<u64> {
        if self.quiet < QUIET_ROUNDS && now >= self.stores_at {
            let any = arena::drain(false) | life::adopt_orphan();
            self.quiet = if any { 0 } else { self.quiet + 1 };
            self.stores_at = now + stores_ms();
        }
        (self.quiet < QUIET_ROUNDS).then_some(self.stores_at)
    }

    /// Returns everything when the kernel is short of memory.
    fn look_for_pressure(&mut self, now: u64) -> Option<u64> {
        let totals = HEAP.totals();
        if totals.dirty + totals.muzzy < PRESSING {
            self.pressure.forget();
            return None;
        }
        if now >= self.pressure_at {
            if self.pressure.is_high(now)? {
                arena::drain(true);
                subrelease::all(None);
                HEAP.purge_all();
            }
            self.pressure_at = now + PRESSURE_MS;
        }
        Some(self.pressure_at)
    }
}

/// Has memory of partly used slabs go back; tells when to see to that again, if there may be more.
fn slabs(now: u64) -> Option<u64> {
    loop {
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
