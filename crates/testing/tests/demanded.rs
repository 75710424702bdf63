//! What a test says, and how it ends, without a program that it needs. The test runs in a process
//! of its own, under the harness and with its output captured, as it does in CI.

use std::process::{Command, Output};

use mallard_testing::{find, lacks, missing, skipped};

const ABSENT: &str = "mallard-no-such-program";

/// Not a test by itself.
#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn needs_a_program() {
    if lacks(&["sh", ABSENT]) {
        return;
    }
    unreachable!("no such program exists");
}

/// Not a test by itself.
#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn needs_a_property() {
    skipped("the machine is no lake");
}

fn run(test: &str, required: Option<&str>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--test-threads=2", test]);
    match required {
        Some(value) => command.env("MALLARD_REQUIRE_PROGRAMS", value),
        None => command.env_remove("MALLARD_REQUIRE_PROGRAMS"),
    };
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_test_without_its_program_passes_and_says_so_on_the_uncaptured_stream() {
    for value in [None, Some("0"), Some("")] {
        let output = run("needs_a_program", value);
        assert!(output.status.success(), "{value:?}: {output:?}");
        let line = format!(
            "skipped: needs_a_program: not installed: {ABSENT} \
             (scripts/setup-tests.sh installs it)\n"
        );
        assert_eq!(said(&output), line, "{value:?}");
    }
}

#[test]
fn a_test_without_its_program_fails_where_programs_are_demanded() {
    let output = run("needs_a_program", Some("1"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    assert!(
        text.contains(ABSENT) && text.contains("demanded.rs"),
        "{text}"
    );
    assert_eq!(said(&output), "", "it fails, and is not skipped");
}

#[test]
fn a_property_of_the_machine_is_not_demanded() {
    for value in [None, Some("1")] {
        let output = run("needs_a_property", value);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            said(&output),
            "skipped: needs_a_property: the machine is no lake\n"
        );
    }
}

#[test]
fn a_value_that_is_no_answer_fails_the_test() {
    let output = run("needs_a_program", Some("yes"));
    assert_eq!(output.status.code(), Some(101));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("MALLARD_REQUIRE_PROGRAMS must be 0 or 1"),
        "{text}"
    );
}

#[test]
fn programs_are_found_by_name_by_path_and_by_pattern() {
    let shell = find("sh").expect("there is a shell");
    assert!(shell.is_file());
    assert_eq!(find(shell.to_str().unwrap()), Some(shell.clone()));
    let pattern = format!("{}/s*h", shell.parent().unwrap().display());
    let found = find(&pattern).expect("the shell fits");
    let name = found.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with('s') && name.ends_with('h'), "{name}");
    assert_eq!(missing(&["sh", ABSENT]), [ABSENT]);
}
