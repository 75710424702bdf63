//! The atomics that concurrent protocols use. These are the real ones; under `--cfg loom`, the
//! model checker's, so that the code that ships is the code that is checked; or, with the feature
//! `counters`, the real ones with their read-modify-writes counted (`count`).

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
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Stores a value only if the variable holds another one. For variables that start out as most
/// processes want them: a page that is never written stays shared with the file, and no process has
/// a copy.
#[cfg(not(loom))]
macro_rules! settle {
    ($variable:expr, $value:expr) => {
        let value = $value;
        if $variable.load(Ordering::Relaxed) != value {
            $variable.store(value, Ordering::Relaxed);
        }
    };
}
#[cfg(not(loom))]
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
