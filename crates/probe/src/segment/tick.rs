//! Timer signals of each thread's CPU time, if the lab asks for them: the handler counts whether
//! the thread was inside the allocator. That needs no privileges and no symbols.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::segment;
use crate::tls::{thread, thread_id};

/// Whether the handler is installed: 0 not tried, 1 installed, 2 the program uses the signal.
static HANDLER: AtomicU32 = AtomicU32::new(0);

fn signal() -> c_int {
    libc::SIGRTMAX() - 3
}

/// Starts a timer for the calling thread. Returns its id plus 1; 0 if there is none.
pub fn start() -> u32 {
    let hz = segment::timer_hz();
    if hz == 0 || !handler() {
        return 0;
    }
    // SAFETY: the kernel fills the id in; the event names this thread.
    unsafe {
        let mut event: libc::sigevent = zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = thread_id() as c_int;
        let mut timer: c_int = 0;
        let made = libc::syscall(
            libc::SYS_timer_create,
            libc::CLOCK_THREAD_CPUTIME_ID,
            &raw mut event,
            &raw mut timer,
        );
        if made != 0 {
            return 0;
        }
        let mut every: libc::itimerspec = zeroed();
        every.it_interval.tv_nsec = i64::from(1_000_000_000 / hz.max(2));
        every.it_value = every.it_interval;
        libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const every, 0_usize);
        timer as u32 + 1
    }
}

pub fn stop(timer: u32) {
    if timer != 0 {
        // SAFETY: a timer of this thread.
        unsafe { libc::syscall(libc::SYS_timer_delete, timer - 1) };
    }
}

/// Installs the handler, unless the program has one for the signal.
fn handler() -> bool {
    match HANDLER.load(Ordering::Acquire) {
        0 => {}
        state => return state == 1,
    }
    // SAFETY: asks for the present action, and sets ours if there is none.
    let installed = unsafe {
        let mut present: libc::sigaction = zeroed();
        libc::sigaction(signal(), core::ptr::null(), &raw mut present);
        let mut ours: libc::sigaction = zeroed();
        let handler: unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) = on_tick;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO | libc::SA_ONSTACK;
        let free =
            present.sa_sigaction == libc::SIG_DFL || present.sa_sigaction == ours.sa_sigaction;
        free && libc::sigaction(signal(), &raw const ours, core::ptr::null_mut()) == 0
    };
    if !installed {
        segment::header().no_timer.store(1, Ordering::Relaxed);
    }
    HANDLER.store(if installed { 1 } else { 2 }, Ordering::Release);
    installed
}

/// Where a timer's signal says how many further expirations it stands for: `si_overrun`.
const OVERRUN_AT: usize = 20;

unsafe extern "C" fn on_tick(_: c_int, info: *mut c_void, _: *mut c_void) {
    let thread = thread();
    // SAFETY: null, or a slot of this process: a forked child has no timers.
    let Some(slot) = (unsafe { thread.slot.get().as_ref() }) else {
        return;
    };
    let count = match thread.busy.get() {
        0 => &slot.cell.ticks_outside,
        _ => &slot.cell.ticks_inside,
    };
    // SAFETY: the kernel filled the structure in; another sender's has some number there.
    let missed = unsafe { info.byte_add(OVERRUN_AT).cast::<c_int>().read() };
    // A thread that is often interrupted sees fewer of the clock's ticks than its time has.
    count.fetch_add(1 + missed.clamp(0, 100) as u32, Ordering::Relaxed);
}
