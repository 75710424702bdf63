//! `mallard compare` and `mallard run` on the user's programs.

use crate::place::typed;
use std::fs;

use crate::place::*;
use mallard_report::model::{Exit, Results};

fn compared(place: &Place) -> Results {
    mallard_report::read_json(&mut place.text("mallard-results/latest/compare.json").as_bytes())
        .unwrap()
}

#[test]
fn a_program_is_compared_by_its_costs_and_its_output() {
    let place = Place::new();
    let lines: String = (0..20_000)
        .map(|n| format!("{}\n", n * 7919 % 20_011))
        .collect();
    fs::write(place.path().join("numbers"), &lines).unwrap();
    let words = typed("compare -a glibc,mallard -r 2 --input numbers -- sort -n");
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(
        stdout.contains("sort -n") && stdout.contains("reference"),
        "{stdout}"
    );
    assert!(
        stdout.contains("same") && !stdout.contains("DIFFERS"),
        "{stdout}"
    );

    let row = &compared(&place).experiments[0].rows[0];
    for cell in &row.cells {
        assert_eq!(cell.runs.len(), 2, "the warm-up does not count: {cell:?}");
        for run in &cell.runs {
            assert_eq!(run.exit, Exit::Code(0));
            assert!(run.seconds > 0.0 && run.seconds == run.wall_seconds);
            assert!(run.peak_rss_bytes > 1 << 20 && run.minor_faults > 0);
        }
    }
    let hash = |cell: usize| row.cells[cell].runs[0].output_hash.clone().unwrap();
    assert_eq!(hash(0), hash(1));
    assert!(
        place
            .text("mallard-results/latest/compare.csv")
            .contains("median_seconds")
    );
    assert!(
        place
            .text("mallard-results/latest/compare.html")
            .starts_with("<!DOCTYPE html>")
    );
}

#[test]
fn a_program_that_fails_under_one_allocator_is_reported_with_its_last_lines() {
    let place = Place::new();
    let library = place.compile("bump.so", BUMP, &LIBRARY);
    place.script(
        "script",
        "#!/bin/sh\ncase $LD_PRELOAD in *bump*) echo help >&2; kill -SEGV $$;; esac\necho fine\n",
    );
    let spec = format!("bump={}", library.display());
    let words = [
        "compare", "-a", "glibc", "--add", &spec, "-r", "2", "--", "./script",
    ];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(
        stdout.contains("SIGSEGV") && stdout.contains("| help"),
        "{stdout}"
    );
    let cells = &compared(&place).experiments[0].rows[0].cells;
    assert_eq!(cells[0].runs.len(), 2);
    let failure = cells[1].failure.as_ref().unwrap();
    assert_eq!(failure.exit, Some(Exit::Signal(11)));
    assert_eq!(failure.last_lines, ["help"]);
}

/// A program that fails in the runs of these numbers, counted from 1 and apart for each allocator.
fn failing(place: &Place, under_bump: &str, under_glibc: &str) {
    place.script(
        "flaky",
        &format!(
            "#!/bin/sh\nname=glibc\nruns='{under_glibc}'\n\
             case $LD_PRELOAD in *bump*) name=bump; runs='{under_bump}';; esac\n\
             echo >> count-$name\nn=$(wc -l < count-$name)\n\
             for run in $runs; do [ $run = $n ] && exit 1; done\nexit 0\n"
        ),
    );
}

/// Compares that program, and returns what was printed and the counts of failed runs.
fn counted(runs: &str, under_bump: &str, under_glibc: &str) -> (String, Vec<[usize; 2]>) {
    let place = Place::new();
    let library = place.compile("bump.so", BUMP, &LIBRARY);
    let spec = format!("bump={}", library.display());
    failing(&place, under_bump, under_glibc);
    let words = [
        "compare", "-a", "glibc", "--add", &spec, "-r", runs, "--", "./flaky",
    ];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    let cells = &compared(&place).experiments[0].rows[0].cells;
    let page = place.text("mallard-results/latest/compare.html");
    let mut counts = Vec::new();
    for attempts in cells.iter().filter_map(|cell| cell.attempts.as_ref()) {
        counts.push([attempts.failed, attempts.of]);
        let said = format!("{} of {}", attempts.failed, attempts.of);
        assert!(stdout.contains(&said) && page.contains(&said), "{stdout}");
    }
    (stdout, counts)
}

#[test]
fn one_run_that_fails_is_repeated_and_blames_no_allocator() {
    let (stdout, counts) = counted("6", "3", "");
    assert_eq!(counts, [[0, 7], [1, 8]], "{stdout}");
    let plain = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        plain.contains("no certain difference from glibc"),
        "{stdout}"
    );
    assert!(
        !plain.contains("more often") && !plain.contains("bump failed"),
        "{stdout}"
    );
    // The first run under glibc does not say how the program ends.
    let (stdout, counts) = counted("5", "", "1");
    assert_eq!(counts, [[1, 6], [0, 6]], "{stdout}");
    assert!(!stdout.contains("bump failed"), "{stdout}");
    assert!(!stdout.contains("counts as success"), "{stdout}");
}

#[test]
fn an_allocator_under_which_every_run_fails_is_blamed() {
    let (stdout, counts) = counted("6", "1 2 3 4", "");
    assert_eq!(counts, [[0, 7], [3, 3]], "{stdout}");
    let plain = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let blamed = "more often under bump than under glibc: 3 of 3 runs and 0 of 7";
    assert!(plain.contains(blamed), "{stdout}");
    assert!(
        plain.contains(
            "bump failed: the program exits with code 1; under glibc it exits with code 0"
        ),
        "{stdout}"
    );
    // Where glibc fails too, nothing says that it does not.
    let (stdout, counts) = counted("5", "1 2 3 4", "2 4");
    assert_eq!(counts, [[2, 8], [3, 3]], "{stdout}");
    let plain = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        plain.contains("; under glibc 2 of 8 runs fail too")
            && plain.contains("no certain difference"),
        "{stdout}"
    );
}

#[test]
fn a_different_output_and_a_different_exit_code_are_reported() {
    let place = Place::new();
    let library = place.compile("bump.so", BUMP, &LIBRARY);
    let spec = format!("bump={}", library.display());
    let start = [
        "compare", "-a", "glibc", "--add", &spec, "-r", "1", "--", "sh", "-c",
    ];

    let output = [&start[..], &["echo ${LD_PRELOAD:+other}; exit 3"]].concat();
    let stdout = place.mallard(&output).exits(SUCCESS).0;
    assert!(stdout.contains("DIFFERS"), "{stdout}");
    // Exiting with 3 everywhere is normal for this program, not a failure.
    assert!(
        !stdout.contains("failed") && stdout.contains("exits with code 3"),
        "{stdout}"
    );

    let exit = [&start[..], &["test -z \"$LD_PRELOAD\""]].concat();
    let stdout = place.mallard(&exit).exits(SUCCESS).0;
    assert!(
        stdout.contains("exits with code 1; under glibc it exits with code 0"),
        "{stdout}"
    );
}

#[test]
fn a_program_with_its_own_malloc_is_not_measured() {
    let place = Place::new();
    let source = format!("{BUMP}\nint main(void) {{ return malloc(1) == 0; }}");
    place.compile("own", &source, &["-fno-builtin", "-rdynamic"]);
    let stdout = place
        .mallard(&["compare", "-a", "glibc,mallard", "--", "./own"])
        .exits(FAILED)
        .0;
    assert!(stdout.contains("has its own"), "{stdout}");
}

#[test]
fn a_program_that_hangs_is_killed_at_the_limit() {
    let place = Place::new();
    let words = typed("compare -a glibc --timeout 1 -- sleep 1000");
    let stdout = place.mallard(&words).exits(FAILED).0;
    assert!(
        stdout.contains("did not finish within the time limit"),
        "{stdout}"
    );
}

#[test]
fn run_passes_everything_through() {
    let place = Place::new();
    let run = |words: &[&str]| place.mallard(&[&["run", "--"], words].concat());
    run(&["true"]).assert().code(SUCCESS).stdout("").stderr("");
    run(&["sh", "-c", "exit 42"]).assert().code(42);
    run(&["cat"])
        .write_stdin("through")
        .assert()
        .code(SUCCESS)
        .stdout("through");
    run(&["sh", "-c", "echo out; echo err >&2"])
        .assert()
        .stdout("out\n")
        .stderr("err\n");
    let ended = run(&["sh", "-c", "kill -TERM $$"]).output().unwrap().status;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&ended),
        Some(15)
    );
}

#[test]
fn an_option_that_confirms_the_options_is_no_complaint_about_them() {
    let place = Place::new();
    for value in ["true", "short"] {
        let conf = format!("confirm_conf:{value}");
        let mut command = place.mallard(&["run", "--conf", &conf, "--", "true"]);
        let (_, stderr) = command.exits(SUCCESS);
        assert!(stderr.starts_with("mallard: version "), "{stderr}");
    }
}

#[test]
fn run_preloads_mallard_with_its_options() {
    let place = Place::new();
    let show = "grep -o '[^ ]*libmallard.so$' /proc/self/maps | head -1; echo $MALLARD_CONF";
    let words = ["run", "--conf", "narenas:2", "--", "sh", "-c", show];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines[0].starts_with('/') && lines[0].ends_with("/libmallard.so"),
        "{stdout}"
    );
    assert_eq!(lines[1], "narenas:2");
}

/// Copies `bytes` bytes to a block of 40 in the way that its argument names.
const COPIES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **words) {
    char *source = calloc(1, 1000), *block = malloc(40), local[64], *end;
    size_t bytes = strtoul(words[2], &end, 10);
    memset(source, 'a', bytes);
    memcpy(local, source, bytes);
    switch (words[1][0]) {
    case 'c': memcpy(block, source, bytes); break;
    case 'm': memmove(block + 8, block, bytes - 8); break;
    case 's': memset(block + 8, 1, bytes - 8); break;
    case 't': strcpy(block, source); break;
    case 'n': strncpy(block, "short", bytes); break;
    case 'a': strcpy(block, "aaa"); strcat(block, source + 3); break;
    case 'f': free(block); memcpy(block, source, bytes); break;
    }
    puts("went on");
}
"#;

#[test]
fn run_hardened_ends_a_copy_before_it_leaves_its_block() {
    let place = Place::new();
    let flags = ["-O1", "-fno-builtin", "-w"];
    let program = place.compile("copies.c", COPIES, &flags);
    let program = program.to_str().unwrap();
    // The way, the most bytes that fit, and the function that is named.
    for (way, fit, name) in [
        ("c", 40, "memcpy"),
        ("m", 40, "memmove"),
        ("s", 40, "memset"),
        ("t", 39, "strcpy"),
        ("n", 40, "strncpy"),
        ("a", 39, "strcat"),
        ("f", 0, "memcpy"),
    ] {
        for (bytes, is_fine) in [(fit, true), (fit + 1, false)] {
            let bytes = bytes.to_string();
            let words = ["run", "--hardened", "--", program, way, &bytes];
            let output = place.mallard(&words).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), is_fine, "{words:?}: {told}");
            let named = format!("mallard: {name}(0x");
            assert_eq!(told.starts_with(&named), !is_fine, "{words:?}: {told}");
            assert!(is_fine || told.lines().count() == 1, "{told}");
        }
    }
}

#[test]
fn run_hardened_is_for_mallard_and_takes_further_options() {
    let place = Place::new();
    let words = ["run", "--hardened", "--conf", "narenas:2", "--", "env"];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(
        stdout.contains("MALLARD_CONF=hardened:true,narenas:2\n"),
        "{stdout}"
    );
    let words = ["run", "--hardened", "-a", "glibc", "--", "true"];
    let (code, _, stderr) = outcome(&mut place.mallard(&words));
    assert_ne!(code, Some(SUCCESS));
    assert!(stderr.contains("--hardened is for mallard"), "{stderr}");
}

#[test]
fn options_of_a_command_go_behind_the_user_s_own() {
    let place = Place::new();
    let said = |words: &[&str]| {
        let mut command = place.mallard(&[words, &["--", "env"]].concat());
        command.env("MALLARD_CONF", "lg_prof_sample:12");
        command.env("MALLOC_CONF", "tcache:false");
        let stdout = command.exits(SUCCESS).0;
        assert!(
            stdout
                .lines()
                .any(|line| line == "MALLOC_CONF=tcache:false"),
            "{stdout}"
        );
        stdout
    };
    for (words, expected) in [
        (&["run"][..], "MALLARD_CONF=lg_prof_sample:12\n"),
        (
            &["run", "--conf", "narenas:2"],
            "MALLARD_CONF=lg_prof_sample:12,narenas:2\n",
        ),
        (
            &["profile", "--no-html"],
            "MALLARD_CONF=lg_prof_sample:12,prof:true,",
        ),
    ] {
        let said = said(words);
        assert!(said.contains(expected), "{said}");
        let is_profile = words[0] == "profile";
        assert_eq!(said.contains("every 4 KiB"), is_profile, "{said}");
    }
}

#[test]
fn run_can_use_another_allocator_and_needs_no_dashes() {
    let place = Place::new();
    let library = place.compile("bump.so", BUMP, &LIBRARY);
    let spec = format!("bump={}", library.display());
    let words = [
        "run",
        "--add",
        &spec,
        "-a",
        "bump",
        "sh",
        "-c",
        "echo $LD_PRELOAD",
    ];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert_eq!(stdout.trim(), library.to_str().unwrap());
}

#[test]
fn allocators_are_listed_with_their_files_and_how_to_get_the_others() {
    let place = Place::new();
    let library = place.compile("bump.so", BUMP, &LIBRARY);
    let spec = format!("bump={}", library.display());
    let stdout = place
        .mallard(&["allocators", "--add", &spec])
        .exits(SUCCESS)
        .0;
    for expected in [
        "✓ glibc",
        "✓ mallard",
        "libmallard.so",
        "jemalloc",
        "tcmalloc",
        "mimalloc",
        "snmalloc",
        "rpmalloc",
        "✓ bump",
        library.to_str().unwrap(),
        "--add NAME=",
    ] {
        assert!(
            stdout.contains(expected),
            "`{expected}` is missing in: {stdout}"
        );
    }
}

#[test]
fn the_help_of_every_command_has_examples() {
    let place = Place::new();
    for words in [
        &["--help"][..],
        &["bench", "--help"],
        &["compare", "--help"],
        &["run", "--help"],
    ] {
        let stdout = place.mallard(words).exits(SUCCESS).0;
        assert!(stdout.contains("Examples:\n  mallard "), "{stdout}");
    }
    let (code, stdout, _) = outcome(&mut place.mallard(&["--version"]));
    assert_eq!(
        (code, stdout.trim()),
        (
            Some(SUCCESS),
            concat!("mallard ", env!("CARGO_PKG_VERSION"))
        )
    );
}

#[test]
fn variants_stand_side_by_side_and_what_reads_no_options_is_told() {
    let place = Place::new();
    let words = [
        "compare",
        "-r",
        "1",
        "--no-warm",
        "--variant",
        "lean=mallard:dirty_decay_ms:0",
        "--variant",
        "usual=mallard",
        "--",
        "ls",
    ];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    let results = compared(&place);
    let names: Vec<&str> = results.allocators.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["glibc", "lean", "usual"]);
    let set = |name: &str| {
        let of = results.allocators.iter().find(|a| a.name == name).unwrap();
        of.environment
            .iter()
            .any(|(_, value)| value == "dirty_decay_ms:0")
    };
    assert!(set("lean") && !set("usual"), "{:?}", results.allocators);
    assert!(stdout.contains("1 run of each cannot tell"), "{stdout}");

    let words = typed("compare -r 1 --no-warm -a glibc,mallard --conf narenas:1 -- ls");
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(stdout.contains("glibc reads no option string"), "{stdout}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn pages_that_the_kernel_may_take_at_will_do_not_count() {
    let place = Place::new();
    let source = r#"
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        static char *touched(size_t bytes) {
            char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(memory, 1, bytes);
            return memory;
        }
        int main(void) {
            const size_t bytes = 64 << 20;
            if (madvise(touched(bytes), bytes, MADV_FREE)) return 1;
            touched(bytes);
            usleep(2600000);
            return 0;
        }
    "#;
    let program = place.compile("lazy", source, &["-O1"]);
    let words = ["compare", "-r", "1", "-w", "0", "-a", "glibc", "--"];
    let mut command = place.mallard(&words);
    let stdout = command.arg(program).exits(SUCCESS).0;
    let results = place.text("mallard-results/latest/compare.json");
    let results = mallard_report::read_json(&mut results.as_bytes()).unwrap();
    let run = &results.experiments[0].rows[0].cells[0].runs[0];
    let lazy = run.lazy_free_bytes.unwrap();
    assert!(lazy > 60 << 20, "{run:?}");
    assert!(
        (64 << 20..100 << 20).contains(&run.peak_rss_bytes),
        "{run:?}"
    );
    let flat = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("may take at will (LazyFree), at most: glibc 6"),
        "{stdout}"
    );
    let page = place.text("mallard-results/latest/compare.html");
    assert!(page.contains("may take at will (LazyFree), at most: glibc 6"));
    let csv = place.text("mallard-results/latest/compare.csv");
    assert!(csv.contains(&lazy.to_string()), "{csv}");
}
