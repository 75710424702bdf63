//! The lowest layer: what the kernel, the C library and the processor provide.
//!
//! - `os` has the system calls and what the C library knows of the process and the thread.
//! - `sync` has locks and their order, and what else threads wait for; `atomic` selects the atomics
//!   that all of it is built of.
//! - `arch` has what depends on the processor's architecture.
//! - `page` has the sizes of pages and cache lines, `bits` holds 512-bit sets, `hint` has hints to
//!   the processor and the compiler, `poison` those to AddressSanitizer, `label` stores texts
//!   without addresses, `message` prints a line, `fault` ends the process with one, and `spread`
//!   has the factor of hash tables.
//! - `model` stands for a part of the system in the models of loom, and `steps` in those of
//!   shuttle.
//! - `faults` makes calls of the system fail on purpose, for tests.
//!
//! Nothing here knows what an allocation is, and nothing here allocates. Users say `sys::lock`, not
//! in which of the two folders it is.

/// A call of the system that the plan of `faults` can make fail: `asked!(KIND or RESULT, CALL)`, or
/// with `after EFFECT` what a failure may have done.
#[cfg(all(any(test, feature = "faults"), not(loom)))]
macro_rules! asked {
    ($kind:ident or $failed:expr, $call:expr) => {
        $crate::sys::faults::ask($crate::sys::faults::Kind::$kind, || $failed, || $call)
    };
    ($kind:ident or $failed:expr; after $effect:expr; $call:expr) => {
        $crate::sys::faults::ask_with(
            $crate::sys::faults::Kind::$kind,
            || $failed,
            Some(|| $effect),
            || $call,
        )
    };
}
/// Notes addresses that are given up, for the tests.
#[cfg(all(test, not(loom)))]
macro_rules! lost {
    ($bytes:expr) => {
        $crate::sys::faults::lose($bytes)
    };
}
#[cfg(not(all(test, not(loom))))]
#[cfg_attr(
    loom,
    allow(unused_macros, reason = "the models make no calls of the system")
)]
macro_rules! lost {
    ($bytes:expr) => {};
}
#[cfg(not(all(any(test, feature = "faults"), not(loom))))]
#[cfg_attr(
    loom,
    allow(unused_macros, reason = "the models make no calls of the system")
)]
macro_rules! asked {
    ($kind:ident or $failed:expr, $call:expr) => {
        $call
    };
    ($kind:ident or $failed:expr; after $effect:expr; $call:expr) => {
        $call
    };
}

#[cfg(all(any(test, feature = "faults"), not(loom)))]
pub mod faults;

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
#[cfg(shuttle)]
pub mod steps;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod bits;
        pub mod hint;
        pub mod poison;

        pub use os::{cpu, descriptor, errno, mappings, mem, memfd, moves, numa, probe, proc, sockets};
        pub use os::{pin, random, signals, thp, time, tls};
        pub use sync::{pending, flag};
    } else {
        mod model;

        use model::{time, tls};
    }
}
