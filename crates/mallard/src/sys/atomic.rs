//! The atomics that concurrent protocols use: the real ones, or the model checker's under
//! `--cfg loom`, so that the code which ships is the code which is checked.

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    compiler_fence,
};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering};
