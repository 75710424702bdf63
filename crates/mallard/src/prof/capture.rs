//! Takes the call stack of the calling thread.
//!
//! The addresses go to a buffer in metadata memory, not to the thread's stack, which may be small.
//! A few buffers are kept for reuse: threads seldom sample at the same moment.

use crate::space::meta;
use crate::sys::atomic::{AtomicPtr, Ordering};
use core::arch::asm;
use core::ptr::NonNull;

/// The most frames that an option may ask for.
pub const FRAMES_MAX: usize = 256;

type Buffer = [usize; FRAMES_MAX];

/// Buffers that no thread uses; null for none.
static KEPT: [AtomicPtr<Buffer>; 8] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 8];

/// A captured stack.
pub struct Stack {
    buffer: NonNull<Buffer>,
    len: usize,
}

impl Stack {
    /// Captures at most `most` frames of the calling thread, without those of this library. `None`
    /// when memory is out.
    #[inline(never)]
    pub fn take(most: usize) -> Option<Stack> {
        let kept = KEPT
            .iter()
            .map(|kept| kept.swap(core::ptr::null_mut(), Ordering::Acquire));
        let buffer = match kept.filter_map(NonNull::new).next() {
            Some(buffer) => buffer,
            None => meta::take(size_of::<Buffer>())?.cast(),
        };
        let mut stack = Stack { buffer, len: 0 };
        // SAFETY: the buffer has this size, and only this thread uses it.
        let frames = unsafe { &mut *buffer.as_ptr() };
        stack.len = walk(&mut frames[..most.min(FRAMES_MAX)]);
        Some(stack)
    }

    /// The return addresses, the innermost first.
    pub fn frames(&self) -> &[usize] {
        // SAFETY: the buffer is this stack's, and so many addresses are written.
        unsafe { &(&*self.buffer.as_ptr())[..self.len] }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let null = core::ptr::null_mut();
        let keep = |kept: &AtomicPtr<Buffer>| {
            kept.compare_exchange(
                null,
                self.buffer.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
        };
        if !KEPT.iter().any(keep) {
            // SAFETY: taken with this size, and nothing refers to it.
            unsafe { meta::give(self.buffer.cast(), size_of::<Buffer>()) };
        }
    }
}

/// PLACEHOLDER until the unwinder is merged: frame pointers.
fn walk(out: &mut [usize]) -> usize {
    let mut fp: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) fp) };
    let mut n = 0;
    while n < out.len() && fp != 0 && fp % 8 == 0 && readable(fp) {
        // SAFETY: just probed.
        let (next, ra) = unsafe { (*(fp as *const usize), *((fp + 8) as *const usize)) };
        if ra < 4096 || next <= fp || next - fp > 1 << 20 {
            break;
        }
        out[n] = ra;
        n += 1;
        fp = next;
    }
    n
}

fn readable(at: usize) -> bool {
    crate::sys::probe::is_readable(at) && crate::sys::probe::is_readable(at + 8)
}
