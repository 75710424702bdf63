//! The thread's variables, in the static TLS block that every thread has from its start. Access to
//! them never calls the loader, which might allocate.

use core::cell::Cell;

use crate::arch;
use mallard_formats::probe::chunks::Record;
use mallard_formats::probe::layout::Slot;

/// What the probe knows of a thread.
#[repr(C)]
pub struct Thread {
    /// The thread's slot, slot 0, or null before the first call. It is only valid in the process
    /// that set it: a forked child sets it anew ([`crate::segment::join`]).
    pub slot: Cell<*const Slot>,
    /// 1 inside a call, and while the probe itself works.
    pub busy: Cell<u32>,
    /// The id of its timer plus 1; 0 if it has none.
    pub timer: Cell<u32>,
    /// The recorder's: the next record of the thread's chunk, and the last that the fast path
    /// writes. Null without a chunk.
    pub next: Cell<*mut Record>,
    pub end: Cell<*mut Record>,
    /// The clock that its records count from, the chunk's number, and how many there were before.
    pub base: Cell<u64>,
    pub chunk: Cell<u32>,
    pub serial: Cell<u32>,
    /// Births until one is followed; 0 before the first.
    pub until_followed: Cell<u32>,
}

/// The kernel's number of the calling thread. The C library has a function only from 2.30 on.
pub fn thread_id() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

// Zero at the start of a thread.
core::arch::global_asm!(
    ".pushsection .tbss.mallard_probe_thread,\"awT\",@nobits",
    ".p2align 4",
    ".hidden mallard_probe_thread",
    ".type mallard_probe_thread, @object",
    ".size mallard_probe_thread, 56",
    "mallard_probe_thread:",
    ".zero 56",
    ".popsection",
);
const _: () = assert!(size_of::<Thread>() == 56);

/// The calling thread's variables. The reference must not reach another thread.
#[inline(always)]
pub fn thread() -> &'static Thread {
    let at = arch::thread_variable!("mallard_probe_thread") as *const Thread;
    // SAFETY: the variable in this thread's block, which lives as long as the thread. Only this
    // thread and its signal handlers use it, through `Cell`s.
    unsafe { &*at }
}
