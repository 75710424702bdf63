//! Keeps signals from the calling thread for a while.

use core::mem::MaybeUninit;
use core::ptr::null_mut;

/// What the thread would not survive blocked: its own faults, and system calls that a filter traps.
const OF_ITS_OWN: [i32; 6] = [
    libc::SIGSYS,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// While this exists, the thread handles no signals but those of its own faults. A thread that it
/// makes inherits that.
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    /// `None` if the system refused.
    pub fn new() -> Option<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each call gets what the calls before it initialised. In glibc and musl
        // `sigprocmask` is for the calling thread; `pthread_sigmask` is in another library before
        // glibc 2.32.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in OF_ITS_OWN {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            let answer = libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            (answer == 0).then(|| Blocked {
                before: before.assume_init(),
            })
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: this is the set that the thread had.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}
