//! Heap profiles, seen from outside the process that was profiled.
//!
//! ```text
//!   bytes of a file ──► read ──► model::Profile ──► names ──► view ──► text, JSON, HTML
//!                                      │
//!                                      └──► write (pprof's format, collapsed stacks)
//! ```
//!
//! - [`read`] turns jemalloc's `heap_v2` and pprof's protobuf into a [`model::Profile`].
//! - [`names`] finds functions, files and lines for addresses.
//! - [`write`] writes one for other tools.

pub mod model;
pub mod names;
pub mod read;
pub mod write;
