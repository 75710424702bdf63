//! `mallard doctor`: planted bugs are named at the line that has them.

use std::path::PathBuf;

use mallard_report::doctor::{Call, Doctor, Event, Finding};

use crate::place::*;

/// A planted bug: a program of `tests/bugs`, whose line of the mistake has the comment `BUG`, and
/// the one that freed the block `FREED`.
struct Bug {
    name: &'static str,
    /// A part of the library's word for it.
    kind: &'static str,
    /// The run in which its line is found.
    run: usize,
}

const fn bug(name: &'static str, kind: &'static str, run: usize) -> Bug {
    Bug { name, kind, run }
}

const BUGS: [Bug; 10] = [
    bug("overflow", "overflow", 2),
    bug("copy", "overflow", 2),
    bug("threads", "after free", 2),
    bug("owners", "double free", 1),
    bug("iterator", "after free", 2),
    bug("mismatch", "delete of a block of new[]", 1),
    bug("stack", "free", 1),
    bug("library", "double free", 1),
    bug("cache", "after free", 2),
    bug("page", "overflow", 2),
];

fn source(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bugs");
    let file = ["c", "cpp"].map(|end| folder.join(format!("{name}.{end}")));
    let file = file.iter().find(|file| file.exists()).expect("a source");
    std::fs::read_to_string(file).unwrap()
}

/// The file and the line with this comment, as reports end with them.
fn line_with(name: &str, comment: &str) -> Option<(String, u32)> {
    let text = source(name);
    let index = text.lines().position(|line| line.contains(comment))?;
    let end = if text.starts_with("/*") { "c" } else { "cpp" };
    Some((format!("{name}.{end}"), index as u32 + 1))
}

fn built(place: &Place, name: &str) -> PathBuf {
    let flags = ["-g", "-O1", "-pthread", "-w"];
    let text = source(name);
    if name == "library" {
        let library = ["-g", "-O1", "-fPIC", "-shared", "-w"];
        let library = place.compile("names", &source("names"), &library);
        let library = library.to_str().unwrap().to_owned();
        return place.compile(name, &text, &[&flags[..], &[&library]].concat());
    }
    if text.starts_with("//") {
        return place.compile_cpp(name, &text, &flags);
    }
    place.compile(name, &text, &flags)
}

fn is_at(call: &Call, at: &(String, u32)) -> bool {
    call.file.ends_with(&at.0) && call.line == at.1
}

fn has(event: &Option<Event>, at: &(String, u32)) -> bool {
    let stack = event.iter().flat_map(|event| &event.stack);
    stack.into_iter().any(|call| is_at(call, at))
}

/// Runs the doctor, which must find the bug; its findings.
fn find(place: &Place, words: &[&str]) -> (Doctor, String) {
    let words = [&["doctor", "--json"], words].concat();
    let (code, stdout, stderr) = outcome(&mut place.mallard(&words));
    assert_eq!(code, Some(FAILED), "{words:?}: {stdout}{stderr}");
    (Doctor::from_json(&stdout).unwrap(), stderr)
}

fn check(bug: &Bug) {
    let place = Place::new();
    let program = built(&place, bug.name);
    // The race may not show in a run.
    let words = ["--repeat", "5", "--", program.to_str().unwrap()];
    let (found, stderr) = find(&place, &words);
    let name = bug.name;
    let at = line_with(name, "BUG").expect("a line with the bug");
    let right = |finding: &&Finding| finding.at.as_ref().is_some_and(|call| is_at(call, &at));
    let finding = found.findings.iter().find(right);
    let finding = finding.unwrap_or_else(|| panic!("{name}: {found:#?}{stderr}"));
    assert!(finding.kind.contains(bug.kind), "{name}: {finding:#?}");
    assert!(finding.exact, "{name}: {finding:#?}");
    if !(name == "cache" || name == "mismatch") {
        assert_eq!((finding.run - 1) % 2 + 1, bug.run, "{name}: {finding:#?}");
    }
    if let Some(freed) = line_with(name, "FREED") {
        assert!(has(&finding.freed, &freed), "{name}: {finding:#?}");
    }
    assert!(!finding.look_for.is_empty());
    if name != "stack" {
        assert!(finding.allocated.is_some(), "{name}: {finding:#?}");
        assert!(!finding.picture.is_empty(), "{name}: {finding:#?}");
    }
}

#[test]
fn an_overflow_is_named_at_its_line() {
    check(&BUGS[0]);
}

#[test]
fn the_outcome_keeps_its_keys() {
    let place = Place::new();
    let program = built(&place, "overflow");
    let (found, _) = find(&place, &["--", program.to_str().unwrap()]);
    crate::keys::stay("doctor", &serde_json::to_string(&found).unwrap());
}

/// Each takes half a second.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn every_planted_bug_is_named_at_its_line() {
    for bug in &BUGS[1..] {
        check(bug);
    }
}

const SOUND: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(int count, char **words) {
        const char *how = count > 1 ? words[1] : "";
        for (int i = 0; i < 1000; i++) {
            char *p = malloc(i);
            if (i) p[i - 1] = 1;
            free(realloc(p, 2 * i + 1));
        }
        if (!strcmp(how, "null"))
            *(volatile int *)0 = 1; /* CRASH */
        if (!strcmp(how, "child")) {
            char *p = malloc(100);
            if (!fork()) { free(p + 16); _exit(0); }
            wait(0);
        }
        if (!strcmp(how, "wait"))
            pause();
        puts("to the end");
        return !strcmp(how, "7") ? 7 : 0;
    }
"#;

#[test]
fn a_sound_program_has_no_finding_and_its_exit_code_is_said() {
    let place = Place::new();
    let program = place.compile("sound", SOUND, &["-g", "-O1", "-w"]);
    let program = program.to_str().unwrap();
    let mut command = place.mallard(&["doctor", "--html", "page.html", "--", program, "7"]);
    let (stdout, _) = command.exits(SUCCESS);
    assert!(stdout.contains("No heap bug found"), "{stdout}");
    assert!(stdout.contains("ended with exit code 7"), "{stdout}");
    assert!(place.text("page.html").contains("No heap bug found"));
}

#[test]
fn a_crash_that_is_not_about_the_heap_is_no_finding_and_has_its_line() {
    let place = Place::new();
    let program = place.compile("sound", SOUND, &["-g", "-O1", "-w"]);
    let mut command = place.mallard(&["doctor", "--", program.to_str().unwrap(), "null"]);
    let (stdout, _) = command.exits(CANNOT_TELL);
    assert!(stdout.contains("SIGSEGV"), "{stdout}");
    let line = SOUND
        .lines()
        .position(|line| line.contains("CRASH"))
        .unwrap()
        + 1;
    assert!(stdout.contains(&format!("sound.c:{line}")), "{stdout}");
}

#[test]
fn a_child_has_findings_of_its_own() {
    let place = Place::new();
    let program = place.compile("sound", SOUND, &["-g", "-O1", "-w"]);
    let (found, _) = find(&place, &["--", program.to_str().unwrap(), "child"]);
    let finding = &found.findings[0];
    let processes = found.runs.iter().flat_map(|run| &run.processes);
    let child = processes.into_iter().find(|it| it.findings > 0).unwrap();
    assert_eq!(finding.process, child.pid);
    assert_ne!(child.pid, found.runs[0].processes[0].pid, "{found:#?}");
}

#[test]
fn a_program_that_does_not_end_is_ended() {
    let place = Place::new();
    let program = place.compile("sound", SOUND, &["-g", "-O1", "-w"]);
    let program = program.to_str().unwrap();
    let mut command = place.mallard(&["doctor", "--for", "0.3", "--", program, "wait"]);
    let (stdout, _) = command.exits(SUCCESS);
    assert!(stdout.contains("ended before its own end"), "{stdout}");
}

#[test]
fn a_program_that_cannot_be_run_has_the_code_of_every_command() {
    let place = Place::new();
    place.mallard(&["doctor"]).exits(USAGE);
    place.mallard(&["doctor", "--", "./none"]).exits(NOT_FOUND);
}

const HELD: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    __attribute__((noinline)) char *hold(void) { return malloc(100); /* HELD */ }
    int main(void) {
        char *volatile free_one = malloc(5000);
        char *held = hold();
        free(free_one);
        printf("%p %p\n", held, (void *)&held);
        fflush(stdout);
        pause();
        free(held);
    }
"#;

#[test]
fn addresses_in_a_core_file_are_explained() {
    if mallard_testing::lacks(&["gcore"]) {
        return;
    }
    let place = Place::new();
    let program = place.compile("held", HELD, &["-g", "-O1", "-w"]);
    let conf = "export_stats:true,prof:true,prof_prefix:,lg_prof_sample:0";
    let words = ["run", "--conf", conf, "--", program.to_str().unwrap()];
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("mallard"))
        .args(words)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let (held, local) = line.trim().split_once(' ').unwrap();
    let gcore = std::process::Command::new("gcore")
        .args(["-o", "core", &child.id().to_string()])
        .current_dir(place.path())
        .output()
        .unwrap();
    let core = format!("core.{}", child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    if !place.path().join(&core).exists() {
        return mallard_testing::skipped(format!("gcore may not read a process: {gcore:?}"));
    }
    let inside = format!("{:#x}", u64::from_str_radix(&held[2..], 16).unwrap() + 8);
    let words = [
        "doctor",
        "--core",
        &core,
        "--address",
        &inside,
        "--address",
        local,
    ];
    let (stdout, _) = place.mallard(&words).exits(SUCCESS);
    assert!(
        stdout.contains("8 bytes into a block of 112 bytes"),
        "{stdout}"
    );
    assert!(stdout.contains("for 100 bytes: in use"), "{stdout}");
    let at = HELD.lines().position(|line| line.contains("HELD")).unwrap() + 1;
    assert!(
        stdout.contains("hold, ") && stdout.contains(&format!("held.c:{at}")),
        "{stdout}"
    );
    assert!(stdout.contains("not in the heap"), "{stdout}");
    place.mallard(&["doctor", "--core", "held.c"]).exits(USAGE);
}
