//! Environment variables that one side sets or names, and the other one reads.

/// Options as jemalloc's users write them.
pub const MALLOC_CONF: &str = "MALLOC_CONF";
/// Options that Mallard alone reads, after all other sources.
pub const MALLARD_CONF: &str = "MALLARD_CONF";
/// The folder that a probe shares with the lab.
pub const PROBE: &str = "MALLARD_PROBE";

/// How the names of the environment's variables begin that set options of an allocator.
const OPTION_VARIABLES: [&str; 7] = [
    "MALLOC_",
    MALLARD_CONF,
    "GLIBC_TUNABLES",
    "MIMALLOC_",
    "RPMALLOC_",
    "TCMALLOC_",
    "_RJEM_MALLOC_CONF",
];

/// Whether a variable of the environment, with or without its value, sets options of an allocator.
pub fn is_option(variable: &str) -> bool {
    OPTION_VARIABLES
        .iter()
        .any(|name| variable.starts_with(name))
}
