//! What must hold for any bytes: they are read or refused, and what is read can be used. Also what
//! the fuzzer checks (fuzz/fuzz_targets/recordings.rs).

use std::io::Cursor;

use mallard_trace::cut::{self, Part};
use mallard_trace::description::{End, Process, Start};
use mallard_trace::import::{self, FORMATS};
use mallard_trace::plan::{self, Family};
use mallard_trace::{Event, Kind, Reader, Recording, Writer, summary};

/// Reads any bytes as a recording and uses what it holds.
pub fn recording(bytes: &[u8]) {
    let Ok(reader) = Reader::new(Cursor::new(bytes)) else {
        return;
    };
    let Ok(mut recording) = Recording::index(reader) else {
        return;
    };
    let summary = summary::of(&mut recording).expect("memory is read without errors");
    let how = plan::Options::default();
    for (&number, process) in &summary.processes {
        let file = tempfile::tempfile().unwrap();
        // Refused: a thread without sound chunks, a plan that is too long for this machine.
        if let Ok(plan) = plan::compile(&mut recording, &Family::alone(number), how, &file) {
            assert_eq!(plan.calls, process.calls);
            assert_eq!(file.metadata().unwrap().len(), plan.bytes);
        }
    }
    let families = plan::families(&mut recording).expect("memory is read without errors");
    for family in families {
        let file = tempfile::tempfile().unwrap();
        if let Ok(plan) = plan::compile(&mut recording, &family, how, &file) {
            let members = family.processes.iter();
            let calls = members.map(|number| summary.processes[number].calls);
            assert_eq!(plan.calls, calls.sum::<u64>());
            assert_eq!(plan.processes as usize, family.processes.len());
        }
    }
    let part = Part {
        from: recording.last() / 2,
        ..Part::default()
    };
    let mut out = Vec::new();
    if cut::cut(&mut recording, &part, &mut out).is_ok() {
        let again = Recording::index(Reader::new(Cursor::new(out)).unwrap()).unwrap();
        assert_eq!(again.state(), mallard_trace::State::default());
    }
}

/// Reads any bytes as another tool's file.
pub fn imported(bytes: &[u8]) {
    for (name, format) in FORMATS {
        let mut out = Vec::new();
        let head = &bytes[..bytes.len().min(64)];
        let _ = import::guess(name, head);
        if import::import(format, bytes, &mut out, name).is_ok() {
            recording(&out);
        }
    }
}

/// A sound recording with two processes and three threads.
pub fn made() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Start::default()).unwrap();
    for (number, forked_from) in [(1, None), (2, Some(1))] {
        let process = Process {
            number,
            forked_from,
            since: u64::from(number - 1) * 150,
            ..Process::default()
        };
        writer.process(&process).unwrap();
    }
    let block = |index: u64| 0x7000_0000_0000 + index * 64;
    let begin = |when, index| Event::new(when, Kind::Malloc, block(index), 48);
    let end = |when, index| Event::new(when, Kind::Free, block(index), 0);
    let mut one: Vec<Event> = (0..100).map(|i| begin(2 * i, i)).collect();
    one.insert(76, Event::new(150, Kind::Fork, 0, 0));
    let two: Vec<Event> = (0..50).map(|i| end(2 * i + 1, i)).collect();
    let resized = [
        Event::new(300, Kind::ReallocBegin, block(60), 0),
        Event::new(301, Kind::ReallocEnd, block(600), 100_000),
        Event::new(302, Kind::Query, block(600), 0),
        Event::new(303, Kind::Touched, 0, 77),
        end(304, 600),
        Event {
            align: 12,
            ..Event::new(305, Kind::Aligned, block(700), 4096)
        },
    ];
    writer.events_of(1, 1, &one).unwrap();
    writer.events_of(1, 2, &two).unwrap();
    writer.events_of(1, 1, &resized).unwrap();
    let child: Vec<Event> = (70..75).map(|i| end(200 + i, i)).collect();
    writer.events_of(2, 1, &child).unwrap();
    writer.finish(&End::default()).unwrap()
}
