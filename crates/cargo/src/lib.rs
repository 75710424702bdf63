//! Runs cargo from another program: with an environment in which it builds what it is asked for.
//!
//! Cargo passes dozens of variables that describe the current build (flags, target folder, profile,
//! wrapper, job server) to build scripts and to programs under `cargo run`. An inner cargo that
//! inherited them would build something else or deadlock. [`carried`] is for build scripts.

pub mod carried;

use std::process::Command;

use mallard_formats::variables;

/// Variables beginning with `CARGO` that configure cargo rather than describe the current build.
const KEPT_PREFIXES: [&str; 6] = [
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "CARGO_TERM_COLOR",
];

/// Variables that steer compilers or describe the outer build.
const DROPPED_VARIABLES: [&str; 21] = [
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "MAKEFLAGS",
    "MFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "TARGET",
    "HOST",
    "OUT_DIR",
    "NUM_JOBS",
    "OPT_LEVEL",
    "DEBUG",
    "PROFILE",
    "LD_PRELOAD",
    variables::MALLOC_CONF,
    variables::MALLARD_CONF,
];

/// Whether an inner cargo must not see the variable `name`.
pub fn is_dropped(name: &str) -> bool {
    let cargos = name == "CARGO" || name.starts_with("CARGO_");
    // The linker for another architecture serves every build for it.
    let is_linker = name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
    let kept = is_linker || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (cargos && !kept) || name.starts_with("DEP_") || DROPPED_VARIABLES.contains(&name)
}

/// A cargo command whose environment has no variables of the surrounding build.
pub fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_dropped) {
            command.env_remove(name);
        }
    }
    command
}
