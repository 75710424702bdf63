//! Long commands without a terminal: a line soon after the start, and what is known until then when
//! a signal ends them.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::place::*;

/// Allocates for as many seconds as it is told.
const PROGRAM: &str = r#"
    #include <stdlib.h>
    #include <time.h>
    int main(int count, char **words) {
        struct timespec begin, now;
        double limit = count > 1 ? atof(words[1]) : 1000;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do {
            for (int i = 0; i < 1000; i++) free(malloc(100));
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while (now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) / 1e9 < limit);
        return 0;
    }
"#;

/// Runs a command, which gets SIGTERM with its process group, as in CI, once a line on standard
/// error has this text.
fn ended(place: &Place, words: &[&str], line: &str) -> (Option<i32>, String, String) {
    place.act_at_line(words, line, |child| {
        let process = Pid::from_child(child);
        // It may have ended.
        let _ = kill_process(process, Signal::TERM);
        let _ = kill_process_group(process, Signal::TERM);
    })
}

/// A command, and what must be in its output.
struct Case {
    options: &'static [&'static str],
    program: &'static [&'static str],
    code: i32,
    /// A part of a line for a log.
    line: &'static str,
    /// A part of what is shown at its end.
    shown: &'static str,
}

const FOREVER: &[&str] = &["--", "./job"];
const SHORT: &[&str] = &["--", "./job", "0.05"];
const MIDDLE: &[&str] = &["--", "./job", "0.5"];
/// SIGTERM ended the program.
const TERMINATED: i32 = 128 + 15;

const fn case(
    options: &'static [&'static str],
    program: &'static [&'static str],
    code: i32,
    line: &'static str,
    shown: &'static str,
) -> Case {
    Case {
        options,
        program,
        code,
        line,
        shown,
    }
}

const CASES: [Case; 10] = [
    case(
        &["diagnose"],
        FOREVER,
        INTERRUPTED,
        "running with the probe · for",
        "Is malloc",
    ),
    case(
        &["diagnose", "--how", "perf"],
        FOREVER,
        INTERRUPTED,
        "from outside · for",
        "Is malloc",
    ),
    case(
        &["compare", "-a", "glibc", "-r", "500"],
        SHORT,
        INTERRUPTED,
        "% done",
        "Report: ",
    ),
    case(
        &["bench", "pairs", "-t", "1", "-a", "glibc", "-r", "500"],
        &[],
        INTERRUPTED,
        "pairs on 1 allocator",
        "Report: ",
    ),
    case(
        &["tune", "-a", "glibc", "--budget", "90s"],
        SHORT,
        INTERRUPTED,
        "each value of each option",
        "report ",
    ),
    case(
        &[
            "baseline",
            "save",
            "job",
            "-a",
            "glibc",
            "--no-anchor",
            "--budget",
            "90s",
        ],
        MIDDLE,
        INTERRUPTED,
        "block ",
        "time ",
    ),
    case(
        &["replay", "-a", "glibc", "-r", "5000", "short.mtrace"],
        &[],
        INTERRUPTED,
        "replay at full speed",
        "Report: ",
    ),
    case(
        &["record"],
        FOREVER,
        TERMINATED,
        "recording ./job · for",
        "recorded ",
    ),
    case(
        &["leak"],
        FOREVER,
        TERMINATED,
        "profiling ./job · for",
        // The signal may come while it holds a block.
        "job (",
    ),
    case(
        &["profile"],
        FOREVER,
        TERMINATED,
        "profiling ./job · for",
        "job (",
    ),
];

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn every_long_command_speaks_to_a_log_and_shows_what_it_knows_at_a_signal() {
    let place = Place::new();
    place.compile("job", PROGRAM, &["-O1", "-fno-builtin"]);
    let mut record = place.mallard(&["record", "-o", "short.mtrace", "--", "./job", "0.01"]);
    record.assert().code(SUCCESS);
    for case in &CASES {
        let words = [case.options, case.program].concat();
        let (code, stdout, stderr) = ended(&place, &words, case.line);
        let said = format!("{words:?}: {code:?}\n{stdout}\n{stderr}");
        assert_eq!(code, Some(case.code), "{said}");
        let mut lines = stderr.lines();
        assert!(lines.any(|line| line.contains(case.line)), "{said}");
        assert!(
            stdout.contains(case.shown) || stderr.contains(case.shown),
            "{said}"
        );
    }
}
