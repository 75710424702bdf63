//! `mallard diff`, and settings of rows by `--set`.

use crate::place::*;

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
        place.mallard(&words).assert().code(SUCCESS);
    }
    let stdout = place
        .mallard(&["diff", "one", "other/results.json"])
        .exits(SUCCESS)
        .0;
    assert!(
        stdout.contains("pairs") && stdout.contains("mallard"),
        "{stdout}"
    );
    let same = ["diff", "one", "one", "--fail-if-slower", "1"];
    let (code, stdout, _) = outcome(&mut place.mallard(&same));
    assert!(
        code == Some(SUCCESS) && stdout.contains("Passed"),
        "{stdout}"
    );
    let (code, _, stderr) = outcome(&mut place.mallard(&["diff", "one", "nowhere"]));
    assert!(
        code == Some(FAILED) && stderr.contains("nowhere"),
        "{stderr}"
    );
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
    let stderr = place.mallard(&words).exits(USAGE).1;
    assert!(
        stderr.contains("--set narena:2") && stderr.contains("narenas"),
        "{stderr}"
    );
}
