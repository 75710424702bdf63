//! The folder of cached files.

pub(crate) mod cleanup;
pub(crate) mod files;
