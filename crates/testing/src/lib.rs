//! What tests of several crates share. Only tests depend on this crate.
//!
//! [`needs`] says what a test lacks on a machine. With the feature `browser`, [`browser`] drives a
//! headless Chromium; with `sources`, [`sources`] finds the paths in a source file.

#[cfg(feature = "browser")]
pub mod browser;
pub mod needs;
#[cfg(feature = "sources")]
pub mod sources;

pub use needs::*;
