//! `mallard bench contention`: counts with the counting build.

use crate::place::*;

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn locks_and_atomics_are_counted_and_written() {
    let place = Place::new();
    let words = ["bench", "contention", "--quick", "-t", "1,4", "batch"];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(stdout.contains("batch, per million operations"), "{stdout}");

    let csv = place.text("mallard-results/latest/contention.csv");
    let count = |threads: &str, lock: &str, event: &str| -> f64 {
        let row = csv
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .find(|row| row[1] == threads && row[3] == lock && row[4] == event)
            .unwrap_or_else(|| panic!("{threads} {lock} {event}: {csv}"));
        row[5].parse().expect("a count")
    };
    for threads in ["1", "4"] {
        let acquired = count(threads, "bin", "acquired");
        assert!(acquired > 0.0, "caches fill from bins");
        assert!(count(threads, "bin", "contended") <= acquired);
        let atomics = count(threads, "atomics", "all");
        // Two for each lock taken and released, and far fewer than the calls.
        assert!(atomics >= 2.0 * acquired, "{atomics} of {acquired}");
        assert!(atomics < 0.5 * 200_000.0, "{atomics}: on the fast paths?");
    }
}

#[test]
fn a_workload_that_cannot_be_counted_is_rejected_before_anything_runs() {
    let place = Place::new();
    let (code, _, stderr) = outcome(&mut place.mallard(&["bench", "contention", "map"]));
    assert_ne!(code, Some(SUCCESS));
    assert!(
        stderr.contains("`map`") && stderr.contains("larson"),
        "{stderr}"
    );
    let words = ["bench", "contention", "-a", "glibc"];
    let (code, _, stderr) = outcome(&mut place.mallard(&words));
    assert_ne!(code, Some(SUCCESS));
    assert!(stderr.contains("-a, --add"), "{stderr}");
}
