//! Core files may come from anywhere. What is in a sound one is found; damaged and hostile ones give
//! one error, and never a panic.

mod checks;
mod made;

use mallard_profile::process::{Error, core};
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
    let stack = &profile.samples[0].stack;
    let told: Vec<String> = stack
        .iter()
        .map(|&i| profile.unnamed(profile.location(i)))
        .collect();
    assert_eq!(told, ["prog+0x1010", "prog+0x1020"]);
    checks::core(&made::core());
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
