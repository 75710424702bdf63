//! A newcomer reads `mallard --help` and nothing else: each of five questions has a line there,
//! with the command that answers it. The tests of that command hold what it answers.

use crate::place::*;

#[test]
fn each_question_has_a_line_with_its_command() {
    let help = Place::new().mallard(&["--help"]).exits(SUCCESS).0;
    for (question, command) in [
        ("Throughput stops scaling?", "diagnose"),
        ("P99 spikes?", "diagnose"),
        ("RSS never falls?", "diagnose"),
        ("Which allocator?", "compare"),
        ("Would another one help?", "diagnose"),
    ] {
        let mut lines = help.lines().map(str::trim);
        let line = lines.find(|line| line.starts_with(question));
        let line = line.unwrap_or_else(|| panic!("{question} is not in\n{help}"));
        let typed = format!("mallard {command} -- PROGRAM  ");
        assert!(line.contains(&typed), "{line}");
    }
}
