//! Uses arbitrary numbers as a MIB of `mallctl`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mallard_core::ctl;

#[allow(dead_code)]
#[path = "../../crates/core/src/ctl/tests/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| {
    let mib: Vec<usize> = checks::mib_of(bytes).collect();
    checks::mib(&mib);
});
