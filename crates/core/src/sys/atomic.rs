//! The atomics that concurrent protocols use. These are the real ones; under `--cfg loom`, the
//! model checker's, so that the code that ships is the code that is checked. Under `--cfg shuttle`,
//! they are the real ones with a scheduling point before each access (`sys::steps`).
//!
//! Data that such a protocol guards lies in an [`UnsafeCell`]. It costs nothing; under loom, it
//! finds accesses that nothing orders.

#[cfg(shuttle)]
pub use super::steps::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
#[cfg(not(any(loom, shuttle)))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
#[cfg(not(loom))]
pub use core::sync::atomic::{Ordering, compiler_fence, fence};
/// Atomics that the model checkers do not watch.
pub mod unmodelled {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
}
#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, fence,
};

/// Defines a function that is `const`, except under loom, whose atomics are made at run time.
macro_rules! const_unless_loom {
    ($(#[$about:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$about])*
        $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$about])*
        $vis fn $($rest)*
    };
}
pub(crate) use const_unless_loom;

/// A cell that threads share by a protocol of their own, accessed as loom wants it.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with the value's address, for reading.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with the value's address, for reading and writing.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Loads the byte at `base` + `offset`, relaxed, with one instruction. The compiler follows the
/// load of an `AtomicU8` with a second instruction that extends the byte, which was extended
/// already.
///
/// # Safety
/// An `AtomicU8` is at that address.
#[cfg(not(loom))]
#[inline(always)]
pub unsafe fn load_byte(base: usize, offset: usize) -> u8 {
    #[cfg(miri)]
    // SAFETY: the caller's promise.
    return unsafe { (*((base + offset) as *const AtomicU8)).load(Ordering::Relaxed) };
    #[cfg(not(miri))]
    // SAFETY: the caller's promise.
    return unsafe { super::arch::load_byte(base, offset) };
}

/// Stores a value only if the variable holds another one. For variables that start out as most
/// processes want them: a page that is never written stays shared with the file, and no process has
/// a copy.
macro_rules! settle {
    ($variable:expr, $value:expr) => {
        let value = $value;
        if $variable.load(Ordering::Relaxed) != value {
            $variable.store(value, Ordering::Relaxed);
        }
    };
}
pub(crate) use settle;
