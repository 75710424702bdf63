//! The lowest layer: what the kernel, the C library and the processor provide.
//!
//! - `os` has the system calls and what the C library knows of the process and the thread.
//! - `sync` has locks and their order, and what else threads wait for; `atomic` selects the atomics
//!   that all of it is built of.
//! - `arch` has what depends on the processor's architecture.
//! - `page` has the sizes of pages and cache lines, `bits` holds 512-bit sets, `hint` has hints to
//!   the processor and the compiler, `label` stores texts without addresses, `message` prints a
//!   line, `fault` ends the process with one, and `spread` has the factor of hash tables.
//! - `model` stands for a part of the system in the models of loom.
//!
//! Nothing here knows what an allocation is, and nothing here allocates. Users say `sys::lock`, not
//! in which of the two folders it is.

pub mod atomic;
pub mod label;
mod os;
pub mod page;
pub mod spread;
mod sync;

use os::futex;
pub use sync::{bell, gate, helper, lock, meter, published, rank, seqlock};

// Apart, because their macros are named by paths.
#[cfg(not(loom))]
pub(crate) mod arch;
#[cfg(not(loom))]
pub mod fault;
#[cfg(not(loom))]
pub mod message;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod bits;
        pub mod hint;

        pub use os::{cpu, descriptor, errno, mappings, mem, memfd, numa, probe, proc, sockets};
        pub use os::{pin, time, tls};
        pub use sync::{pending, flag};
    } else {
        mod model;

        use model::{time, tls};
    }
}
