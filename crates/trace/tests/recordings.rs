//! Recordings from anywhere: sound ones, cut ones, damaged ones, and bytes made up at random.

mod checks;

use std::io::Cursor;

use mallard_trace::cut::{self, Part};
use mallard_trace::description::{End, Start};
use mallard_trace::plan::{self, Family};
use mallard_trace::{Event, Kind, Reader, Recording, State, Writer, summary};
use proptest::prelude::*;

fn read(bytes: Vec<u8>) -> Recording<Cursor<Vec<u8>>> {
    Recording::index(Reader::new(Cursor::new(bytes)).unwrap()).unwrap()
}

#[test]
fn a_sound_recording_is_what_was_written() {
    checks::recording(&checks::made());
    let mut recording = read(checks::made());
    assert_eq!(recording.state(), State::default());
    let summary = summary::of(&mut recording).unwrap();
    let (one, two) = (&summary.processes[&1], &summary.processes[&2]);
    assert_eq!((one.threads, one.calls, one.freed_elsewhere), (2, 154, 50));
    assert_eq!(one.live_blocks, 50);
    // The child was forked at 150: 76 blocks had begun and 50 had ended.
    assert_eq!((two.ended, two.lives.unknown), (5, 0));
    assert_eq!(two.live_blocks, 100 - 24 - 50 - 5);
}

/// What [`checks::made`] has made in each version of the format. In version 1 each part has a
/// chunk. A new version adds a file; the others stay.
const VERSIONS: [&[u8]; 2] = [
    include_bytes!("version-1.mtrace"),
    include_bytes!("version-2.mtrace"),
];

#[test]
fn files_of_every_version_are_read() {
    assert_eq!(VERSIONS.len(), usize::from(mallard_trace::VERSION));
    let now = summary::of(&mut read(checks::made())).unwrap();
    for (file, version) in VERSIONS.into_iter().zip(1..) {
        assert_eq!(file[7], version);
        checks::recording(file);
        let mut recording = read(file.to_vec());
        assert_eq!(recording.state(), State::default());
        let summary = summary::of(&mut recording).unwrap();
        assert_eq!(summary, now, "version {version}");
    }
}

/// Chunks of one thread and shared ones lie in any order in the file, and events in theirs.
#[test]
fn threads_that_share_chunks_are_read_in_order() {
    let mut writer = Writer::new(Vec::new(), &Start::default()).unwrap();
    let event = |when, size| Event::new(when, Kind::Malloc, 16 * when, size);
    let long: Vec<Event> = (0..1000).map(|i| event(5 + 10 * i, 1)).collect();
    for thread in 2..500 {
        let when = u64::from(thread) * 20;
        writer.events_of(1, thread, &[event(when, 2)]).unwrap();
        if thread == 200 {
            writer.events_of(1, 1, &long).unwrap();
        }
        if thread % 100 == 0 {
            // The same thread once more, before and after what waits is written.
            writer.events_of(1, 2, &[event(when + 1, 3)]).unwrap();
        }
    }
    writer.events_of(1, 1, &[event(10_001, 4)]).unwrap();
    let mut recording = read(writer.finish(&End::default()).unwrap());
    let mut merged = recording.merged(1);
    let mut found = Vec::new();
    while let Some((thread, event)) = merged.next_event().unwrap() {
        found.push((event.when, thread, event.size));
    }
    assert_eq!(found.len(), 498 + 1000 + 4 + 1);
    assert!(found.is_sorted());
    let of = |thread| found.iter().filter(move |found| found.1 == thread).count();
    assert_eq!((of(1), of(2), of(3)), (1001, 5, 1));
}

#[test]
fn a_plan_has_an_edge_for_each_block_that_changes_hands() {
    let mut recording = read(checks::made());
    let how = plan::Options::default();
    let file = tempfile::tempfile().unwrap();
    let plan = plan::compile(&mut recording, &Family::alone(1), how, &file).unwrap();
    assert_eq!((plan.threads, plan.lanes, plan.freed_elsewhere), (2, 2, 50));
    assert_eq!(plan.curve.len(), 100);
    let file = tempfile::tempfile().unwrap();
    let serial = plan::Options { serial: true };
    let plan = plan::compile(&mut recording, &Family::alone(1), serial, &file).unwrap();
    assert_eq!((plan.threads, plan.freed_elsewhere), (1, 0));
    // A forked process begins with its parent's blocks.
    let file = tempfile::tempfile().unwrap();
    let plan = plan::compile(&mut recording, &Family::alone(2), how, &file).unwrap();
    assert_eq!((plan.calls, plan.lives.unknown), (5, 0));
}

#[test]
fn a_family_forks_with_the_blocks_that_lived() {
    let mut recording = read(checks::made());
    let families = plan::families(&mut recording).unwrap();
    let [family] = &families[..] else {
        panic!("{families:?}");
    };
    assert_eq!(family.processes, [1, 2]);
    assert_eq!((family.forks[0].thread, family.forks[0].since), (1, 150));
    for serial in [false, true] {
        let file = tempfile::tempfile().unwrap();
        let how = plan::Options { serial };
        let plan = plan::compile(&mut recording, family, how, &file).unwrap();
        let threads = if serial { 2 } else { 3 };
        assert_eq!((plan.processes, plan.threads), (2, threads));
        assert_eq!((plan.calls, plan.lives.unknown), (159, 0));
        // The child frees what it has inherited where the parent has put it: it needs no slot more.
        let alone = plan::compile(
            &mut recording,
            &Family::alone(1),
            how,
            &tempfile::tempfile().unwrap(),
        );
        assert_eq!(plan.slots, alone.unwrap().slots);
    }
}

#[test]
fn a_part_begins_with_what_lives() {
    let mut recording = read(checks::made());
    let whole = summary::of(&mut recording).unwrap();
    for from in [0, 1, 99, 150, 250, 301, 400] {
        let mut out = Vec::new();
        let part = Part {
            from,
            ..Part::default()
        };
        cut::cut(&mut recording, &part, &mut out).unwrap();
        let part = summary::of(&mut read(out)).unwrap();
        for (number, process) in &part.processes {
            let whole = &whole.processes[number];
            assert_eq!(process.lives.unknown, 0, "from {from}, process {number}");
            assert_eq!(
                process.live_blocks, whole.live_blocks,
                "from {from}, process {number}"
            );
            assert_eq!(
                process.live_bytes, whole.live_bytes,
                "from {from}, process {number}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_recording_that_is_cut_anywhere_is_read(length: usize) {
        let whole = checks::made();
        let length = length % (whole.len() + 1);
        checks::recording(&whole[..length]);
        if length >= 16 {
            let recording = read(whole[..length].to_vec());
            prop_assert_eq!(recording.state().damaged, 0);
        }
    }

    #[test]
    fn changed_bytes_are_noticed_or_harmless(changes: Vec<(u16, u8)>) {
        let mut bytes = checks::made();
        for (place, value) in changes {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        checks::recording(&bytes);
    }

    #[test]
    fn any_bytes_are_imported_or_refused(bytes: Vec<u8>, text in "[0-9a-fx: +()=,\n]{0,200}") {
        checks::imported(&bytes);
        checks::imported(text.as_bytes());
    }
}
