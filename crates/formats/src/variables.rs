//! Environment variables that one side sets or names, and the other one reads.

/// Options as jemalloc's users write them.
pub const MALLOC_CONF: &str = "MALLOC_CONF";
/// Options that Mallard alone reads, after all other sources.
pub const MALLARD_CONF: &str = "MALLARD_CONF";
/// The folder that a probe shares with the lab.
pub const PROBE: &str = "MALLARD_PROBE";
