//! Reads arbitrary bytes, and changes to a sound file, as a recording, and uses what is accepted.
//! Because a checksum hides what is behind it, the bytes are also read as the content of a chunk,
//! of one thread and of several.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/checks/mod.rs"]
mod checks;

// Each three bytes replace one of the sound file's: its place, and its value.
fuzz_target!(|bytes: &[u8]| {
    checks::recording(bytes);
    checks::imported(bytes);
    if let Ok(events) = mallard_trace::columns::decode(bytes, 1) {
        let mut writer = mallard_trace::Writer::new(Vec::new(), &Default::default()).unwrap();
        if !events.is_empty() && writer.events_of(1, 1, &events).is_ok() {
            checks::recording(&writer.finish(&Default::default()).unwrap());
        }
    }
    if let Ok(threads) = mallard_trace::packed::decode(bytes, 1) {
        let mut writer = mallard_trace::Writer::new(Vec::new(), &Default::default()).unwrap();
        for (thread, events) in threads {
            writer.events_of(1, thread, &events).unwrap();
        }
        checks::recording(&writer.finish(&Default::default()).unwrap());
    }
    let mut file = checks::made();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[place] = change[2];
    }
    checks::recording(&file);
});
