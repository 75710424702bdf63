//! Makes the calls of C that are read from bytes on the library that `MALLARD_LIBRARY` names, and
//! on the C library's own `malloc`: both must answer alike.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

#[allow(dead_code, reason = "its users take different parts")]
#[path = "../../crates/core/tests/histories/checks/bytes.rs"]
mod bytes;
#[path = "../../crates/e2e/tests/abi/checks.rs"]
mod checks;

use checks::Face;

static FACES: LazyLock<[Face; 2]> = LazyLock::new(|| {
    let library = std::env::var("MALLARD_LIBRARY").expect("MALLARD_LIBRARY names a library");
    [Face::of(&library), Face::of("libc.so.6")]
});

fuzz_target!(|bytes: &[u8]| checks::calls(&FACES[0], &FACES[1], bytes));
