//! Reads a history of legal calls of all fronts from bytes, and checks every answer against a
//! model.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/core/tests/histories/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::heap::history(bytes));
