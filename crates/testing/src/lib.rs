//! What tests of several crates share. Only tests depend on this crate.
//!
//! [`needs`] says what a test lacks on a machine. With the feature of its name, `sources` finds the
//! paths in a source file. It has few dependencies, because the core's tests use it.

pub mod needs;
#[cfg(feature = "sources")]
pub mod sources;

pub use needs::*;
