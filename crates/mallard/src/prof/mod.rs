//! The heap profiler: `unwind` finds out who called.
//!
//! It stands right above `sys`, because it runs inside `malloc`, where it may neither allocate nor
//! wait.

pub mod unwind;
