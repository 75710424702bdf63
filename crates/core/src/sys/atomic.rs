//! The atomics that concurrent protocols use. These are the real ones; under `--cfg loom`, the
//! model checker's, so that the code that ships is the code that is checked; or, with the feature
//! `counters`, the real ones with their read-modify-writes counted (`count`).
//!
//! Data that such a protocol guards lies in an [`UnsafeCell`]. It costs nothing; under loom, it
//! finds accesses that nothing orders.

#[cfg(all(not(loom), not(feature = "counters")))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, compiler_fence, fence,
};
#[cfg(all(not(loom), feature = "counters"))]
pub use core::sync::atomic::{Ordering, compiler_fence, fence};
#[cfg(all(not(loom), feature = "counters"))]
pub use counted::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
/// Atomics that the model checker does not watch.
pub mod unmodelled {
    #[cfg(not(loom))]
    pub use super::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
    #[cfg(loom)]
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

/// Each type wraps the real one under the same name. Its own read-modify-write methods take
/// precedence in method lookup; all other methods are those of the real type.
#[cfg(all(not(loom), feature = "counters"))]
mod counted {
    use crate::sys::count::read_modify_write;
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic as real;
    use real::Ordering;

    macro_rules! counted {
        ($name:ident $(<$t:ident>)?, $value:ty, { $($method:ident),* }) => {
            #[derive(Default)]
            #[repr(transparent)]
            pub struct $name $(<$t>)? (real::$name $(<$t>)?);

            impl $(<$t>)? $name $(<$t>)? {
                pub const fn new(value: $value) -> Self {
                    Self(real::$name::new(value))
                }

                $(
                    pub fn $method(&self, value: $value, order: Ordering) -> $value {
                        read_modify_write();
                        self.0.$method(value, order)
                    }
                )*

                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    read_modify_write();
                    self.0.compare_exchange(current, new, success, failure)
                }

                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    read_modify_write();
                    self.0.compare_exchange_weak(current, new, success, failure)
                }
            }

            impl $(<$t>)? Deref for $name $(<$t>)? {
                type Target = real::$name $(<$t>)?;
                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl $(<$t>)? DerefMut for $name $(<$t>)? {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.0
                }
            }
        };
    }

    macro_rules! counted_integers {
        ($($name:ident $value:ty),*) => {
            $(counted!($name, $value, {
                swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min
            });)*
        };
    }

    counted_integers!(AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicI64 i64, AtomicUsize usize);
    counted!(AtomicBool, bool, { swap, fetch_and, fetch_or, fetch_xor });
    counted!(AtomicPtr<T>, *mut T, { swap });
}
