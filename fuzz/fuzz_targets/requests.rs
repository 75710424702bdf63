//! Reads arbitrary bytes as what a client of the server in the process sends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use request::{Parsed, SECONDS_MAX, parse, seconds, wants_text};

#[allow(dead_code)]
#[path = "../../crates/http/src/request.rs"]
mod request;

#[path = "../../crates/http/src/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::request(bytes));
