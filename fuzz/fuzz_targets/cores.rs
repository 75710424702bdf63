//! Reads arbitrary bytes, and changes to a sound file, as a core file, and shows what is accepted.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/profile/tests/checks/mod.rs"]
mod checks;
#[path = "../../crates/profile/tests/made/mod.rs"]
mod made;

// Each three bytes replace one of the sound file's: its place, and its value.
fuzz_target!(|bytes: &[u8]| {
    checks::core(bytes);
    let mut core = made::core();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % core.len();
        core[place] = change[2];
    }
    checks::core(&core);
});
