//! `mallard soak`: some seconds of it, and with faults of the program's own that it must find.

use mallard_report::soak::Soak;

use crate::place::*;

/// The variable by which the program of the soak misbehaves.
const FAULT: &str = "MALLARD_SOAK_FAULT";

fn soak(place: &Place) -> Soak {
    Soak::from_json(&place.text("out/soak.json")).unwrap()
}

/// What is said of a bound.
fn holds(soak: &Soak, name: &str) -> Option<bool> {
    let mut bounds = soak.bounds.iter();
    let bound = bounds.find(|bound| bound.name == name);
    bound.expect("a bound of this name").holds
}

#[test]
fn a_short_soak_holds_all_bounds_and_is_shown_again() {
    let place = Place::new();
    let words = ["soak", "--seconds", "3", "--size", "8", "-o", "out"];
    let (stdout, _) = place.mallard(&words).exits(SUCCESS);
    for part in ["growth", "churn", "rest", "All bounds hold", "soak.html"] {
        assert!(stdout.contains(part), "{part} is missing: {stdout}");
    }
    let found = soak(&place);
    assert_eq!(holds(&found, "contents"), Some(true));
    assert_eq!(holds(&found, "live"), Some(true), "{:?}", found.bounds);
    assert_eq!(holds(&found, "RSS"), Some(true), "{:?}", found.bounds);
    assert_eq!(holds(&found, "RSS slope"), None, "seconds say nothing");
    let last = found.phases.last().unwrap();
    assert!(last.forks > 0 && last.threads_made > 20 && last.operations > 10_000);
    crate::keys::stay("soak", &place.text("out/soak.json"));

    let (shown, _) = place.mallard(&["report", "out"]).exits(SUCCESS);
    assert!(shown.contains(&found.sentence), "{shown}");
    assert!(place.text("out/soak.html").contains("Memory over time"));
}

#[test]
fn a_leak_and_a_lost_byte_break_the_bound_that_is_about_them() {
    for (fault, name, seconds) in [("leak", "live", "9"), ("overwrite", "contents", "2")] {
        let place = Place::new();
        let words = ["soak", "--seconds", seconds, "--size", "4", "-o", "out"];
        let mut command = place.mallard(&words);
        let (stdout, _) = command.env(FAULT, fault).exits(FAILED);
        assert!(stdout.contains("BROKEN"), "{fault}: {stdout}");
        assert_eq!(holds(&soak(&place), name), Some(false), "{fault}: {stdout}");
    }
}

#[test]
fn another_allocator_is_judged_by_what_it_tells() {
    let place = Place::new();
    let words = [
        "soak",
        "--seconds",
        "2",
        "--size",
        "4",
        "-a",
        "glibc",
        "--json",
        "-o",
        "out",
    ];
    let output = place.mallard(&words).output().unwrap();
    assert!(
        matches!(output.status.code(), Some(SUCCESS | FAILED)),
        "{output:?}"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let found = Soak::from_json(&printed).unwrap();
    assert_eq!(holds(&found, "contents"), Some(true));
    assert_eq!(holds(&found, "live"), None, "glibc has no such figure");
}

#[test]
fn a_time_is_given_once() {
    let place = Place::new();
    let words = ["soak", "--hours", "1", "--seconds", "1"];
    place.mallard(&words).exits(USAGE);
    place.mallard(&["soak", "--hours", "0"]).exits(USAGE);
}
