//! Reads a history of a manual arena from bytes, whose extent hooks refuse and lie.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/core/tests/histories/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::hooks::hooks(bytes));
