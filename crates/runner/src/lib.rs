//! Runs a program and measures its cost without adding its own.
//!
//! [`Launcher`] starts each measured process from a tiny parent, so that its peak memory does not
//! include the lab's. It also warms the machine's memory beforehand ([`Launcher::warm`],
//! [`memory::warm_up`]), and [`reporting`] detects whether the machine gave it back meanwhile.
//! [`Cpus`] is a set of CPUs to pin to, and [`Stop`] ends a session early.
//!
//! This crate knows nothing about allocators and does no statistics.

mod cpus;
mod launcher;
pub mod memory;
mod output;
pub mod reporting;
mod stop;

pub use cpus::{Cpus, CpusError};
pub use launcher::{COUNTED_SYSCALLS_MAX, End, Error, Launcher, Measurement, Purpose, Spec};
pub use output::{FAILURE_LINES, Output};
pub use stop::Stop;
