//! The verdicts of `mallard diagnose` about real programs. Each program does work whose answer is
//! clear: far from the threshold, so that it is the same on a busy machine, and seen in 130 samples
//! or more, without which nothing that is below the threshold is known to be.

use std::fmt::Write as _;
use std::fs;

use mallard_report::diagnosis::{Answer, Aspect, Diagnosis};
use mallard_testing::not_installed;

use crate::place::*;

/// A program with its work, and the verdict: the answer and its key.
struct Case {
    program: &'static str,
    arguments: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
    /// Whether the program is run more than once. One run leaves the share open where calls are so
    /// many that the probe takes a third of the time, and where the timer's ticks may all meet the
    /// same part of a period.
    is_repeated: bool,
    verdict: (Answer, &'static str),
}

const fn case(
    program: &'static str,
    arguments: &'static [&'static str],
    verdict: (Answer, &'static str),
) -> Case {
    Case {
        program,
        arguments,
        variable: None,
        is_repeated: false,
        verdict,
    }
}

const COMPUTES: (Answer, &str) = (Answer::No, "computing");
const POOL: (Answer, &str) = (Answer::No, "pool");
const WORK: (Answer, &str) = (Answer::Yes, "work");

const SUMS: &str = "CREATE TABLE t AS WITH RECURSIVE c(x) AS \
                    (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<6000) SELECT x FROM c; \
                    SELECT sum(abs(a.x - b.x)) FROM t a, t b";
// Since Ruby 3.2, objects have room for strings of up to 640 bytes.
const STRINGS: &str = "k = Array.new(20000)
2000000.times { |i| k[i * 7919 % 20000] = 'x' * (i % 200 + 650) }";
// Blocks that are small enough for Python's own pool. 50,000 live at a time, too many for a thread
// cache, so that malloc takes its slower paths.
const BYTES: &str = "k = [None] * 50000
for i in range(6000000): k[i * 7919 % 50000] = b'x' * (130 + i % 340)";

const CASES: [Case; 9] = [
    case("/usr/bin/python3", &["-c", BYTES], POOL),
    Case {
        variable: Some(("PYTHONMALLOC", "malloc")),
        is_repeated: true,
        ..case("/usr/bin/python3", &["-c", BYTES], WORK)
    },
    case("/usr/bin/sqlite3", &[":memory:", SUMS], COMPUTES),
    case(
        "/usr/bin/perl",
        &["-e", "for my $i (1..15000000) { $x = ($x*31+$i) % 65521 }"],
        COMPUTES,
    ),
    case(
        "/usr/bin/awk",
        &[
            "{a[$1%1000]+=$1} END {print a[7]}",
            "numbers",
            "numbers",
            "numbers",
            "numbers",
            "numbers",
        ],
        COMPUTES,
    ),
    case(
        "/usr/bin/xz",
        &[
            "-0kc", "numbers", "numbers", "numbers", "numbers", "numbers",
        ],
        COMPUTES,
    ),
    Case {
        is_repeated: true,
        ..case("/usr/bin/ruby", &["-e", STRINGS], WORK)
    },
    case(
        "/usr/bin/node",
        &[
            "-e",
            "let x = 0; for (let i = 0; i < 4e9; i++) x = (x + i) | 0;",
        ],
        POOL,
    ),
    case(
        "cc1",
        &["-quiet", "-O2", "functions.c", "-o", "functions.s"],
        WORK,
    ),
];

/// The compiler proper, which `gcc` starts.
fn cc1() -> Option<String> {
    let output = std::process::Command::new("gcc")
        .arg("-print-prog-name=cc1")
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(path.trim().to_owned()).filter(|path| path.starts_with('/'))
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn real_programs_get_the_verdict_that_they_always_got() {
    let place = Place::new();
    let numbers: String = (0..2_000_000).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "{n}");
        text
    });
    fs::write(place.path().join("numbers"), numbers).unwrap();
    // So many that about 1,200 samples come, of which one in eleven is inside.
    let functions: String = (0..2000).fold(String::new(), |mut text, n| {
        let _ = writeln!(
            text,
            "int f{n}(int a, int b) {{ int s = 0; for (int i = 0; i < a; i++) \
             {{ s += i * b + {n}; if (s % {} == 0) s ^= b; }} return s; }}",
            n % 7 + 2
        );
        text
    });
    fs::write(place.path().join("functions.c"), functions).unwrap();
    let mut wrong = String::new();
    for case in &CASES {
        let program = match case.program {
            "cc1" => cc1().unwrap_or_else(|| "cc1".to_owned()),
            program => program.to_owned(),
        };
        let name = program.rsplit('/').next().unwrap();
        if !fs::exists(&program).unwrap() {
            not_installed(name);
            continue;
        }
        let runs: &[&str] = if case.is_repeated { &[] } else { &["--quick"] };
        let mut command = place.mallard(&["diagnose", "--json", "--no-syscalls"]);
        command.args(runs).args(["--", &program]);
        command.args(case.arguments).envs(case.variable);
        let (_, stdout, stderr) = outcome(&mut command);
        let d = Diagnosis::from_json(&stdout)
            .unwrap_or_else(|error| panic!("{program}: {error}: {stdout}{stderr}"));
        let mut keys = d.troubles.iter().chain(&d.takes).map(|t| t.key.as_str());
        let (answer, key) = case.verdict;
        let of_time = d.verdicts.iter().find(|of| of.aspect == Aspect::Time);
        let answered = of_time.map(|of| of.answer);
        if answered != Some(answer) || !keys.any(|found| found == key) {
            let _ = writeln!(
                wrong,
                "{program} {:?}: {key} is expected: {:?} {:?} {:?} {:?}, inside {:?} of {}",
                case.variable,
                answered,
                d.verdicts,
                d.troubles,
                d.takes,
                d.figures.inside,
                d.figures.samples
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
