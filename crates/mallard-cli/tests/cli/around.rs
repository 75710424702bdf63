//! What stands around the runs: commands of the user, exports, completions and manual pages.

use crate::place::typed;
use crate::place::*;

#[test]
fn commands_around_the_runs_run_once_and_before_each() {
    let place = Place::new();
    let words = [
        "compare",
        "-a",
        "glibc",
        "-r",
        "2",
        "-w",
        "1",
        "--no-warm",
        "--name",
        "my job",
        "--setup",
        "echo s >> log",
        "--prepare",
        "echo p >> log",
        "--cleanup",
        "echo c >> log",
        "--show-output",
        "--",
        "echo",
        "spoken",
    ];
    let stderr = place.mallard(&words).exits(SUCCESS).1;
    assert_eq!(
        place.text("log").split_whitespace().collect::<String>(),
        "spppc"
    );
    assert_eq!(stderr.matches("spoken\n").count(), 3, "{stderr}");
    let folder = std::fs::read_link(place.path().join("mallard-results/latest")).unwrap();
    assert!(
        folder.to_str().unwrap().starts_with("compare-my-job-"),
        "{folder:?}"
    );
}

#[test]
fn a_command_that_fails_before_a_run_ends_the_comparison() {
    let place = Place::new();
    for hook in ["--setup", "--prepare", "--cleanup"] {
        let words = [
            "compare",
            "-a",
            "glibc",
            "-r",
            "1",
            "--no-warm",
            hook,
            "exit 9",
            "--",
            "true",
        ];
        let stderr = place.mallard(&words).exits(FAILED).1;
        assert!(
            stderr.contains(&format!("{hook} 'exit 9' failed")),
            "{stderr}"
        );
    }
}

#[test]
fn what_was_measured_is_kept_when_a_command_around_it_fails() {
    let place = Place::new();
    let compare = |hook: &str, command: &str| {
        let begin = ["compare", "-a", "glibc,mallard", "-r", "2", "-w", "0"];
        let end = ["--no-warm", "-o", "out", hook, command, "--", "true"];
        let stderr = place.mallard(&[&begin[..], &end].concat()).exits(FAILED).1;
        assert!(stderr.contains(&format!("error: {hook}")), "{stderr}");
        let text = place.text("out/compare.json");
        let results = mallard_report::read_json(&mut text.as_bytes()).unwrap();
        let cells = &results.experiments[0].rows[0].cells;
        let runs: Vec<usize> = cells.iter().map(|cell| cell.runs.len()).collect();
        runs
    };
    assert_eq!(compare("--cleanup", "exit 9"), [2, 2]);
    // The third run does not begin, and the fourth neither.
    let third = "echo p >> log; test $(wc -l < log) != 3";
    assert_eq!(compare("--prepare", third), [1, 1]);
    assert_eq!(place.text("log").lines().count(), 3);
}

#[test]
fn figures_that_a_program_prints_are_compared() {
    let place = Place::new();
    let compare = |metric: &str, more: &[&str]| {
        let begin = ["compare", "-a", "glibc,mallard", "-r", "2", "-w", "0"];
        let end = ["--no-warm", "-o", "out", "--metric", metric];
        let program = ["--", "echo", "qps: 100"];
        outcome(&mut place.mallard(&[&begin[..], &end, more, &program].concat()))
    };
    let (code, stdout, stderr) = compare("qps=regex:qps: (.*)", &[]);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("qps") && stdout.contains("rss_peak"),
        "{stdout}"
    );
    let text = place.text("out/compare.json");
    let results = mallard_report::read_json(&mut text.as_bytes()).unwrap();
    let row = &results.experiments[0].rows[0];
    let names: Vec<&str> = row.metrics.iter().map(|metric| &*metric.name).collect();
    assert_eq!(names, ["qps", "time", "cpu", "rss_peak", "faults"]);
    for run in row.cells.iter().flat_map(|cell| &cell.runs) {
        assert_eq!(run.metric("qps"), Some(100.0));
        assert_eq!(run.metric("rss_peak"), Some(run.peak_rss_bytes as f64));
    }
    let (code, _, stderr) = compare("qps=regex:rate: (.*)", &[]);
    assert_eq!(code, Some(FAILED), "{stderr}");
    assert!(
        stderr.contains("the line that was read: qps: 100"),
        "{stderr}"
    );
    let (code, _, stderr) = compare("qps=regex:qps: (.*)", &["--seconds", "3"]);
    assert_eq!(code, Some(USAGE), "{stderr}");
    assert!(stderr.contains("--seconds is for a service"), "{stderr}");
}

#[test]
fn a_program_that_fails_counts_if_the_user_says_so() {
    let place = Place::new();
    let words = |more: &[&'static str]| {
        let begin = ["compare", "-a", "mallard", "-r", "1", "--no-warm"];
        [
            &begin[..],
            more,
            &["--", "sh", "-c", "ls >/dev/null; exit 3"],
        ]
        .concat()
    };
    let (code, ..) = outcome(&mut place.mallard(&words(&[])));
    assert_eq!(code, Some(FAILED));
    place
        .mallard(&words(&["--ignore-failure"]))
        .assert()
        .code(SUCCESS);
}

#[test]
fn exports_go_to_files_and_to_standard_output() {
    let place = Place::new();
    let words = [
        "compare",
        "-a",
        "glibc",
        "-r",
        "1",
        "--no-warm",
        "--export-markdown",
        "-",
        "--export-json",
        "x.json",
        "--export-csv",
        "x.csv",
        "--",
        "ls",
    ];
    let (stdout, stderr) = place.mallard(&words).exits(SUCCESS);
    assert!(
        stdout.contains("| allocator | time |") && stdout.contains("| glibc |"),
        "{stdout}"
    );
    assert!(
        !stdout.contains("Report:") && stderr.contains("Report:"),
        "{stdout}{stderr}"
    );
    assert!(mallard_report::read_json(&mut place.text("x.json").as_bytes()).is_ok());
    assert!(
        place.text("x.csv").starts_with("program,"),
        "{}",
        place.text("x.csv")
    );

    let words = typed("compare --export-csv - --export-json - -- touch ran");
    place.mallard(&words).assert().code(USAGE);
    let words = ["compare", "--export-csv", "no/where", "--", "touch", "ran"];
    let stderr = place.mallard(&words).exits(FAILED).1;
    assert!(stderr.contains("cannot write no/where"), "{stderr}");
    assert!(!place.path().join("ran").exists());
}

#[test]
fn completions_and_manual_pages_are_written_for_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let stdout = place.mallard(&["completions", shell]).exits(SUCCESS).0;
        assert!(
            stdout.contains("compare") && stdout.contains("variant"),
            "{shell}"
        );
    }
    place.mallard(&["man", "pages"]).assert().code(SUCCESS);
    let page = place.text("pages/mallard-compare.1");
    assert!(page.contains(".TH") && page.contains("variant"), "{page}");
    assert!(place.path().join("pages/mallard.1").exists());
}

#[test]
fn a_project_s_file_gives_defaults_and_typed_options_win() {
    let place = Place::new();
    let file = place.path().join("mallard.toml");
    std::fs::write(
        &file,
        "[defaults]\nallocator = 'glibc'\n[compare]\nruns = 2\nwarmup = 0\n",
    )
    .unwrap();
    let stderr = place
        .mallard(&["compare", "-o", "out", "--", "true"])
        .exits(SUCCESS)
        .1;
    assert!(
        stderr.starts_with("mallard.toml: ") && stderr.contains(" --allocator=glibc\n"),
        "{stderr}"
    );
    let read = || {
        let text = place.text("out/compare.json");
        mallard_report::read_json(&mut text.as_bytes()).unwrap()
    };
    let results = read();
    let cells = &results.experiments[0].rows[0].cells;
    assert_eq!((cells.len(), cells[0].runs.len()), (1, 2));
    assert!(
        results.command.contains(&"--runs=2".to_owned()),
        "{:?}",
        results.command
    );
    let words = ["compare", "-r", "1", "-o", "out", "--", "true"];
    place.mallard(&words).assert().code(SUCCESS);
    assert_eq!(read().experiments[0].rows[0].cells[0].runs.len(), 1);
    // Without the file, and with a mistake in it.
    let mut command = place.mallard(&["allocators", "list", "glibc"]);
    let (code, _, stderr) = outcome(command.env("MALLARD_TOML", ""));
    assert_eq!((code, stderr.as_str()), (Some(SUCCESS), ""));
    std::fs::write(&file, "[compare]\nrusn = 2\n").unwrap();
    let stderr = place
        .mallard(&["allocators", "list", "glibc"])
        .exits(USAGE)
        .1;
    assert!(stderr.contains("did you mean `runs`?"), "{stderr}");
}

#[test]
fn a_program_runs_on_whatever_allocator_it_has() {
    let place = Place::new();
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }";
    let program = place.compile("static", source, &["-static"]);
    let program = program.to_str().unwrap();
    let compare = |allocators: &str| {
        let words = [
            "compare", "-a", allocators, "-r", "1", "-o", "out", "--", program,
        ];
        outcome(&mut place.mallard(&words))
    };
    let (code, stdout, stderr) = compare("glibc,as-is");
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    let results =
        mallard_report::read_json(&mut place.text("out/compare.json").as_bytes()).unwrap();
    let cells = &results.experiments[0].rows[0].cells;
    assert!(
        cells[0].failure.as_ref().unwrap().reason.contains("static"),
        "{cells:?}"
    );
    assert_eq!(
        (cells[1].allocator.as_str(), cells[1].runs.len()),
        ("as-is", 1)
    );
    let (code, _, stderr) = compare("glibc");
    assert_eq!(code, Some(NOT_EXECUTABLE), "{stderr}");
    let stderr = place
        .mallard(&["bench", "pairs", "-a", "as-is"])
        .exits(USAGE)
        .1;
    assert!(stderr.contains("as-is is only for compare"), "{stderr}");
}
