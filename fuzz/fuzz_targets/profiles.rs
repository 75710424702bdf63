//! Reads arbitrary bytes as a heap profile, and shows and writes what is accepted.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/profile/tests/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::profile(bytes));
