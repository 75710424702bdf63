//! Watches a program and the processes that it starts, from outside.
//!
//! The evidence comes from three places:
//! - the probe (`crates/probe`), which is preloaded and writes what each thread does, and what it
//!   has done, into [`segments`] that this crate reads ([`layout`] describes them);
//! - `/proc`, for the state of threads ([`threads`]) and for memory;
//! - for programs that take no probe, and as the finer way where it is permitted, samples of the
//!   kernel.
//!
//! [`recorder`] empties the probe's chunks into a recording. [`Watch`] reads all of them while a
//! program runs and returns [`Findings`]. Nothing here judges: `mallard-judge` does. This
//! crate knows allocators only by their names ([`family`]).
//!
//! [`follow`] follows a program with all processes that it starts, and says when each begins and
//! ends.

mod arch;
pub mod clock;
pub mod family;
pub mod follow;
pub mod perf;
mod probe;
mod ptrace;
pub mod recorder;
pub mod stops;
pub mod syscalls;
pub mod threads;
pub mod waits;
mod watch;

pub use probe::folder::Folder;
pub use probe::{chunks, folder, layout, segments};
pub use watch::findings::{self, Findings};
pub use watch::{Settings, Watch, Way};

/// The probe, a shared library to preload.
pub const PROBE: &[u8] = include_bytes!(env!("MALLARD_CARRIED_PROBE_LIBRARY"));
/// The name of its file.
pub const PROBE_NAME: &str = "libmallard_probe.so";
