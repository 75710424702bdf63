//! Heap profiles, seen from outside the process that was profiled.
//!
//! ```text
//!   bytes of a file ──► read ─────► model::Profile ──► names ──► view ──► show (table, JSON, HTML)
//!   process, core ────► process ──┘    │
//!                                      └──► write (pprof's format, collapsed stacks)
//! ```
//!
//! - [`process`] reads a profile out of a process's memory, or out of a core file.
//! - [`read`] turns jemalloc's `heap_v2` and pprof's protobuf into a [`model::Profile`].
//! - [`names`] finds functions, files and lines for addresses.
//! - [`view`] answers questions: sites by live bytes, peak, waste, and how these changed.
//! - [`show`] has the answers as a table, as JSON and as one HTML file with flame graphs.
//! - [`mod@write`] writes a profile for other tools.

pub mod model;
pub mod names;
pub mod process;
pub mod read;
pub mod show;
pub mod view;
pub mod write;
