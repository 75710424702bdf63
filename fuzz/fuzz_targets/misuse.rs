//! Reads a history from bytes, then commits one misuse in a child, which must end with its line.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/core/tests/histories/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::misuse::misuse(bytes));
