//! The floor that everything stands on: what the kernel, the C library and the processor give.
//!
//! `mem` wraps the memory system calls, `tls` finds the calling thread's cache, `lock` is the one
//! kind of lock and `bell` what a sleeping thread is woken by (both over `futex`), `gate` keeps
//! forks and calls apart, `bits` the 512-bit maps, `time` the clock, `numa` tells nodes of memory
//! apart, `cpu` CPUs, `hint` tells the processor what comes, `errno` keeps the caller's `errno`,
//! `message` says a line, `fault` ends the process with one, `label` has texts that cost no
//! address, `meter` is what a lock tells of itself, `stay` has the loader keep the object that we
//! are part of, `count` is for builds that count what threads do to each other. Nothing here knows
//! what an allocation is, and nothing here allocates.

pub mod atomic;
pub mod bell;
#[cfg(not(loom))]
pub mod bits;
pub mod count;
#[cfg(not(loom))]
pub mod cpu;
#[cfg(not(loom))]
pub mod errno;
#[cfg(not(loom))]
pub mod fault;
mod futex;
pub mod gate;
#[cfg(not(loom))]
pub mod hint;
pub mod label;
pub mod lock;
#[cfg(not(loom))]
pub mod mappings;
pub mod mem;
#[cfg(not(loom))]
pub mod message;
pub mod meter;
#[cfg(not(loom))]
pub mod numa;
#[cfg(not(loom))]
pub mod stay;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
pub mod tls;
