//! A newcomer reads `mallard --help` and nothing else: each of five questions has a line there, and
//! the command on that line answers it on a program that has the trouble.

use crate::diagnose::troubles;
use crate::place::*;

/// The words of the command that the help gives for a question.
fn command(help: &str, question: &str) -> Vec<String> {
    let line = help.lines().find(|line| line.trim().starts_with(question));
    let line = line.unwrap_or_else(|| panic!("{question} is not in\n{help}"));
    let (_, rest) = line.split_once("mallard ").expect("the line has a command");
    let (command, explained) = rest.split_once("  ").expect("and says what for");
    assert!(!explained.trim().is_empty(), "{line}");
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[1..], ["--", "PROGRAM"], "{line}");
    words
}

/// Types the command for a question with this program, and further options in front of it.
fn answer(
    question: &str,
    options: &[&str],
    program: &[&str],
    variables: &[(&str, &str)],
) -> String {
    let place = Place::new();
    let help = place.mallard(&["--help"]).exits(SUCCESS).0;
    let words = command(&help, question);
    let built = troubles(&place);
    let mut typed = place.mallard(&[&words[0]]);
    typed
        .args(options)
        .arg("--")
        .envs(variables.iter().copied());
    match program {
        [trouble] => typed.arg(built).arg(trouble),
        words => typed.args(words),
    };
    let stdout = typed.exits(SUCCESS).0;
    // Lines break where they are full.
    stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One run is enough here; without it the command only runs the program more often.
const ONCE: &[&str] = &["--quick"];

#[test]
fn throughput_that_stops_scaling_is_told_to_be_the_allocator_s_locks() {
    let one = [("MALLOC_ARENA_MAX", "1")];
    let said = answer("Throughput stops scaling?", ONCE, &["locks"], &one);
    assert!(said.contains("YES, by locks."), "{said}");
    assert!(said.contains("futex"), "{said}");
}

#[test]
fn spikes_of_p99_are_told_to_be_slow_calls() {
    let said = answer("P99 spikes?", ONCE, &["slow"], &[]);
    assert!(said.contains("bottleneck? YES"), "{said}");
    assert!(
        said.contains("frees wait for memory to be given back"),
        "{said}"
    );
    assert!(said.contains("longest call"), "{said}");
}

#[test]
fn rss_that_never_falls_is_told_to_be_held_back() {
    let said = answer("RSS never falls?", ONCE, &["held-back"], &[]);
    assert!(said.contains("bottleneck? YES"), "{said}");
    assert!(said.contains("the allocator keeps free memory"), "{said}");
    assert!(said.contains("went back when asked to"), "{said}");
}

#[test]
fn which_allocator_is_told_by_a_table_of_those_that_are_ready() {
    let options = ["-r", "1", "-w", "0", "--no-warm", "-a", "glibc,mallard"];
    let said = answer("Which allocator?", &options, &["sh", "-c", ":"], &[]);
    for part in ["glibc", "mallard", "peak RSS"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_program_that_no_other_allocator_helps_gets_a_no() {
    let said = answer("Would another one help?", ONCE, &["compute"], &[]);
    assert!(
        said.contains("bottleneck?") && said.contains("NO."),
        "{said}"
    );
}
