//! The system calls, and what the C library knows of the process and the calling thread.
//!
//! `mem` wraps the memory system calls, `mappings` counts borders of mappings, and `memfd` maps
//! memory that other processes can open. `sockets` knows the sockets of the server in the process,
//! and `descriptor` descriptors that the program does not know. `futex` waits for a word of memory
//! to change, `time` reads the clocks by the function that `vdso` finds, `numa` and `cpu` find the
//! NUMA node and the CPU, `tls` finds the calling thread's cache, `errno` preserves the caller's
//! `errno`, `probe` finds out whether memory can be read, `proc` reads files of `/proc` and `/sys`,
//! and `pin` keeps our object from being unloaded.

#[cfg(not(loom))]
pub mod cpu;
#[cfg(not(loom))]
pub mod descriptor;
#[cfg(not(loom))]
pub mod errno;
pub(super) mod futex;
#[cfg(not(loom))]
pub mod mappings;
#[cfg(not(loom))]
pub mod mem;
#[cfg(not(loom))]
pub mod memfd;
#[cfg(not(loom))]
pub mod numa;
#[cfg(not(loom))]
pub mod pin;
#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod proc;
#[cfg(not(loom))]
pub mod sockets;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
pub mod tls;
#[cfg(not(loom))]
mod vdso;
