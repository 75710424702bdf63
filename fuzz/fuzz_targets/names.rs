//! Uses arbitrary bytes as a name of `mallctl`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mallard_core::ctl;

#[allow(dead_code)]
#[path = "../../crates/core/src/ctl/tests/checks.rs"]
mod checks;

fuzz_target!(|name: &[u8]| checks::name(name));
