//! `mallard diff`, and settings of rows by `--set`.

use crate::place::{Place, outcome};

#[test]
fn two_results_are_compared_and_gate_by_their_intervals() {
    let place = Place::new();
    for folder in ["one", "other"] {
        let words = [
            "bench",
            "pairs",
            "-t",
            "1",
            "--count",
            "1000",
            "-r",
            "6",
            "--no-warm",
            "-a",
            "glibc,mallard",
            "-o",
            folder,
        ];
        let (code, stdout, stderr) = outcome(&mut place.mallard(&words));
        assert_eq!(code, Some(0), "{stdout}{stderr}");
    }
    let (code, stdout, stderr) =
        outcome(&mut place.mallard(&["diff", "one", "other/results.json"]));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(
        stdout.contains("pairs") && stdout.contains("mallard"),
        "{stdout}"
    );
    let same = ["diff", "one", "one", "--fail-if-slower", "1"];
    let (code, stdout, _) = outcome(&mut place.mallard(&same));
    assert!(code == Some(0) && stdout.contains("Passed"), "{stdout}");
    let (code, _, stderr) = outcome(&mut place.mallard(&["diff", "one", "nowhere"]));
    assert!(code == Some(1) && stderr.contains("nowhere"), "{stderr}");
    let json = place.text("one/results.json");
    for part in [
        "\"schema\": 2",
        "\"sha256\"",
        "load at start",
        "started_seconds",
    ] {
        assert!(json.contains(part), "{part} is missing");
    }
}

#[test]
fn a_set_that_an_allocator_refuses_ends_the_command() {
    let place = Place::new();
    let words = ["bench", "tune", "-a", "mallard", "--set", "narena:2"];
    let (code, _, stderr) = outcome(&mut place.mallard(&words));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("--set narena:2") && stderr.contains("narenas"),
        "{stderr}"
    );
}
