//! The lowest layer: what the kernel, the C library and the processor provide.
//!
//! `mem` wraps the memory system calls, `tls` finds the calling thread's cache, `lock` is the only
//! kind of lock, `bell` wakes a sleeping thread (both use `futex`), `gate` keeps forks and calls
//! apart, `published` has references that are set once, `helper` the state of the background
//! thread, `flag` is a lock for the time in which a hook of the program runs, `mappings` counts
//! borders of mappings, `bits` holds 512-bit sets, `time` reads the clocks, `numa` and `cpu`
//! tell the NUMA node and the CPU, `hint` has hints to the processor and the compiler, `errno`
//! preserves the caller's `errno`, `message` prints a line, `fault` ends the process with one,
//! `label` stores texts without addresses, `meter` keeps a lock's statistics, `stay` keeps our
//! object from being unloaded, `atomic` selects the atomics, and `count` counts contention in
//! builds made for it.
//! Nothing here knows what an allocation is, and nothing here allocates.

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
#[cfg(not(loom))]
pub mod flag;
mod futex;
pub mod gate;
pub mod helper;
#[cfg(not(loom))]
pub mod hint;
pub mod label;
pub mod lock;
#[cfg(not(loom))]
pub mod mappings;
#[cfg(not(loom))]
pub mod mem;
#[cfg(not(loom))]
pub mod message;
pub mod meter;
#[cfg(not(loom))]
pub mod numa;
pub mod published;
pub mod rank;
#[cfg(not(loom))]
pub mod stay;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
pub mod tls;
