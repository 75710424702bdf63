//! Uses arbitrary bytes as option strings: those before the first NUL as the program's, the rest as
//! the variable's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mallard_core::conf::{self, Source};

#[allow(dead_code)]
#[path = "../../crates/core/src/conf/tests/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let (symbol, variable) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    checks::strings(&[(Source::Symbol, symbol), (Source::MallocConf, variable)]);
});
