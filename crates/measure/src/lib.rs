//! Runs a program and tells what it cost, without the measurer showing in the figures.
//!
//! [`Launcher`] starts each measured process from a tiny parent of its own, so that its peak memory
//! is its own and not the lab's, and has the machine's memory warmed before ([`Launcher::warm`],
//! [`memory::warm_up`]); [`reporting`] tells whether the machine gave it back meanwhile.
//! [`schedule`] says in which order several candidates take turns, so that a drift of the machine
//! meets all of them alike. [`Cpus`] is a set of CPUs to pin to and [`Stop`] the way out when the
//! user has seen enough.
//!
//! Nothing here knows what an allocator is, and nothing here does statistics.

mod cpus;
mod launcher;
pub mod memory;
mod output;
pub mod reporting;
pub mod schedule;
mod stop;

pub use cpus::{Cpus, CpusError};
pub use launcher::{End, Error, Launcher, MOST_SYSCALLS, Measurement, Purpose, Spec};
pub use output::Output;
pub use stop::Stop;
