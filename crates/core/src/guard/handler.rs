//! The handler of SIGSEGV and SIGBUS while guards are on.
//!
//! A fault in the pool is reported. All others, and those that end the process, go to the handler
//! that was there before or, if there was none, to the system, which ends the process at the same
//! instruction with the same signal. A program that installs a handler of its own later has all
//! faults; it may call ours as the one before.

use super::finding::Accessed;
use super::{blocks, pool, report};
use crate::report as told;
use crate::sys::arch;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::time;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions that were there before. Written before our handler is installed, by the thread that
/// switches guards on.
struct Before([UnsafeCell<MaybeUninit<libc::sigaction>>; 2]);

// SAFETY: the thread that switches has them to itself until `INSTALLED` is set; after that they are
// only read, until our handler is not there any more.
unsafe impl Sync for Before {}

static BEFORE: Before = Before([const { UnsafeCell::new(MaybeUninit::zeroed()) }; 2]);
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The thread that reports a fault; 0 for none.
static REPORTING: AtomicU32 = AtomicU32::new(0);
/// The address of its fault, and that of its context.
static FAULT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

/// Installs the handler. For the thread that switches.
pub fn install() {
    if INSTALLED.load(Ordering::Relaxed) {
        return;
    }
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE.0) {
        // SAFETY: the pointers are valid, and the handler may run in any thread at any moment. The
        // record of the one before is not read yet.
        unsafe {
            let before = (*before.get()).as_mut_ptr();
            if libc::sigaction(signal, core::ptr::null(), before) != 0 || is_ours(&*before) {
                continue;
            }
            let mut ours = *before;
            ours.sa_sigaction = handle as *const () as usize;
            ours.sa_flags = ours.sa_flags & libc::SA_NODEFER | libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const ours, core::ptr::null_mut());
        }
    }
    INSTALLED.store(true, Ordering::Release);
}

/// Takes the handler away, where it is still the one that is there. For the thread that switches.
pub fn remove() {
    if !INSTALLED.load(Ordering::Relaxed) {
        return;
    }
    let mut all = true;
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE.0) {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the pointers are valid, and the record of the one before is complete.
        unsafe {
            let got = libc::sigaction(signal, core::ptr::null(), now.as_mut_ptr());
            if got == 0 && is_ours(now.assume_init_ref()) {
                libc::sigaction(signal, (*before.get()).as_ptr(), core::ptr::null_mut());
            } else {
                // The program's own handler may call ours.
                all = false;
            }
        }
    }
    if all {
        INSTALLED.store(false, Ordering::Relaxed);
    }
}

unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _keep = KeepErrno::new();
    // SAFETY: the kernel passes a valid record.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let mut near = pool::near(at).into_iter().flatten();
    if code > 0 && near.any(|place| place.is_open_for_good()) {
        // Another thread's finding has opened the page meanwhile.
        return;
    }
    if code > 0 && report::judge(at).is_some() {
        if begin_to_report() {
            FAULT[0].store(at, Ordering::Relaxed);
            FAULT[1].store(context.expose_provenance(), Ordering::Relaxed);
            // SAFETY: the stack is the thread's that `REPORTING` names; the function takes any
            // number.
            unsafe { arch::call_on(told::stack_top(), report_fault, 0) };
            REPORTING.store(0, Ordering::Release);
        }
        if report::goes_on() {
            return;
        }
    }
    // SAFETY: the arguments of this handler.
    unsafe { pass_on(signal, info, context, code) };
}

/// Takes the right to report; false for a thread that reports already.
fn begin_to_report() -> bool {
    let me = told::thread();
    loop {
        match REPORTING.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) if other == me => return false,
            Err(_) => time::nap(),
        }
    }
}

unsafe extern "C" fn report_fault(_: usize) {
    let [at, context] = [&FAULT[0], &FAULT[1]].map(|word| word.load(Ordering::Relaxed));
    // SAFETY: the kernel has put the context there.
    let is_write = unsafe { arch::is_write(core::ptr::with_exposed_provenance(context)) };
    blocks::fault(at, context, Accessed::of(is_write));
}

/// Does what would have happened without this handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let which = usize::from(signal == SIGNALS[1]);
    // SAFETY: the record is complete, because our handler is installed.
    let before = unsafe { *(*BEFORE.0[which].get()).as_ptr() };
    match before.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction runs again, and its fault ends the process. A signal that was sent is
            // sent again, and arrives when this handler returns.
            let mut default = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: the record is valid; zeros are the default action. The calls have no further
            // preconditions.
            unsafe {
                (*default.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, default.as_ptr(), core::ptr::null_mut());
                if code <= 0 {
                    let process = libc::getpid();
                    libc::syscall(libc::SYS_tgkill, process, told::thread(), signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the program has installed it with this flag.
            let handler = unsafe { core::mem::transmute::<usize, Handler>(handler) };
            // SAFETY: the kernel's arguments.
            unsafe { handler(signal, info, context) };
        }
        handler => {
            // SAFETY: the program has installed it without that flag.
            let handler =
                unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler) };
            // SAFETY: the kernel's argument.
            unsafe { handler(signal) };
        }
    }
}
