//! Core files may come from anywhere. What is in a sound one is found; damaged and hostile ones
//! give one error, and never a panic.

mod checks;
mod made;

use std::io::Write;

use flate2::write::GzEncoder;
use mallard_profile::model::LabelValue;
use mallard_profile::process::{Error, Reading, core};
use mallard_profile::view::View;
use proptest::prelude::*;

#[test]
fn the_records_of_a_core_are_found() {
    let reading = core::read(&made::core(), None).unwrap();
    assert!(reading.notes.is_empty(), "{:?}", reading.notes);
    let profile = &reading.profile;
    let total = |view: View| {
        let figures = view.figures(profile).unwrap();
        let blocks = figures.blocks.map_or(0, |place| profile.total(place));
        (blocks, profile.total(figures.main))
    };
    assert_eq!(total(View::Live), (3, 114_912));
    assert_eq!(total(View::Allocs), (3, 114_912));
    assert_eq!(total(View::Peak).1, 120_000);
    assert_eq!(total(View::Waste).1, 14_712);
    // Two regions of 112 bytes are free in the page of the two blocks.
    assert_eq!(total(View::Frag).1, 224);
    let stack = &profile.samples[0].stack;
    let told: Vec<String> = stack
        .iter()
        .map(|&i| profile.unnamed(profile.location(i)))
        .collect();
    assert_eq!(told, ["prog+0x1010", "prog+0x1020"]);
    let threads: Vec<LabelValue> = profile
        .samples
        .iter()
        .flat_map(|sample| &sample.labels)
        .filter(|label| &*label.key == "thread")
        .map(|label| label.value.clone())
        .collect();
    let told = |number: u32| LabelValue::Text(format!("thread {number} (tid 4711)").into());
    assert_eq!(threads, [told(1), told(2), told(3)]);
    checks::core(&made::core());
}

/// The reading of a file with these bytes.
fn opened(bytes: &[u8]) -> Result<Option<Reading>, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    core::open(file.path(), None)
}

#[test]
fn packed_cores_are_unpacked() {
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let whole = made::core();
    let halves = whole.split_at(whole.len() / 2);
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&whole).unwrap();
    for packed in [
        zstd(&whole),
        // As a program that packs on several threads writes it.
        [zstd(halves.0), zstd(halves.1)].concat(),
        gzip.finish().unwrap(),
    ] {
        let reading = opened(&packed).unwrap().expect("it is a core");
        let figures = View::Live.figures(&reading.profile).unwrap();
        assert_eq!(reading.profile.total(figures.main), 114_912);
        for end in [20, packed.len() / 2, packed.len() - 9] {
            // Cut short, or no core at all; no panic.
            let _ = opened(&packed[..end]);
        }
    }
    assert!(matches!(opened(&zstd(b"some text")), Ok(None)));
    let lz4 = opened(&[0x04, 0x22, 0x4d, 0x18, 0, 0, 0, 0]).unwrap_err();
    assert!(lz4.to_string().contains("`lz4 -d FILE core`"), "{lz4}");
}

#[test]
fn a_core_of_another_version_and_one_whose_lists_lead_nowhere_are_told() {
    let changed = |at: usize, number: u64| {
        let mut bytes = made::core();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        core::read(&bytes, None).unwrap_err()
    };
    assert!(matches!(changed(made::LAYOUT_AT, 7), Error::Layout(7)));
    // A site that follows itself.
    let circle = changed(made::SITE_LATER_AT, 0x2_0100);
    assert!(matches!(circle, Error::Damaged(_)), "{circle}");
    let outside = changed(made::SITE_LATER_AT, 0x7_0000);
    assert!(matches!(outside, Error::Fault(_)), "{outside}");
}

#[test]
fn a_core_that_is_cut_anywhere_is_survived() {
    let whole = made::core();
    for end in 0..whole.len() {
        checks::core(&whole[..end]);
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn any_damage_to_a_core_is_survived() {
    let change = (any::<prop::sample::Index>(), any::<u64>(), 0..4usize);
    let changes = prop::collection::vec(change, 1..8);
    let config = ProptestConfig {
        failure_persistence: None,
        cases: 4000,
        ..ProptestConfig::default()
    };
    proptest!(config, |(changes in changes)| {
        let mut bytes = made::core();
        for (place, number, width) in changes {
            let (place, width) = (place.index(bytes.len()), 1 << width);
            let number = number >> (number % 64);
            let end = (place + width).min(bytes.len());
            bytes[place..end].copy_from_slice(&number.to_le_bytes()[..end - place]);
        }
        checks::core(&bytes);
    });
}
