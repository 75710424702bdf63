//! Uses arbitrary bytes as a name of `mallctl`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mallard::ctl;

#[allow(dead_code)]
#[path = "../../crates/mallard/src/ctl/tests/checks.rs"]
mod checks;

fuzz_target!(|name: &[u8]| checks::name(name));
