//! What the probe and the lab share: the [`folder`], and in it the [`segments`] of processes.

pub mod folder;
pub mod segments;

pub use mallard_formats::probe::{chunks, layout};
