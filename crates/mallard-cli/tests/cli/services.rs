//! Services as subjects: every preset is raced for real, and every trouble of a server is named and
//! leaves no process behind.

use crate::place::typed;
use std::fs;

use mallard_report::model::Row;
use mallard_testing::{lacks, skipped};

use crate::place::*;

/// Compares a service on another allocator and mallard in one short round, and returns its row.
fn race(service: &str, other: &str) -> Row {
    let place = Place::new();
    let allocators = format!("{other},mallard");
    let words = [
        "compare",
        "--service",
        service,
        "--seconds",
        "1",
        "--settle",
        "200ms",
    ];
    let words = [&words[..], &["-r", "1", "-w", "0", "-a", &allocators]].concat();
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(stdout.contains("closed loop"), "{stdout}");
    let text = place.text("mallard-results/latest/compare.json");
    let mut results = mallard_report::read_json(&mut text.as_bytes()).unwrap();
    let row = results.experiments.remove(0).rows.remove(0);
    assert_eq!(row.cells.len(), 2, "{stdout}");
    for cell in &row.cells {
        assert_eq!(cell.failure, None, "{}: {stdout}", cell.allocator);
        assert_eq!(cell.runs.len(), 1, "{stdout}");
        for run in &cell.runs {
            for metric in &row.metrics {
                let figure = run.metric(&metric.name);
                assert!(
                    figure.is_some_and(|figure| figure >= 0.0),
                    "{}",
                    metric.name
                );
            }
            let of = |name| run.metric(name).unwrap();
            assert!(of("qps") > 0.0 && of("p50") <= of("p99"), "{run:?}");
            assert!(of("rss_end") > (1 << 20) as f64 && of("rss_peak") >= of("rss_mean"));
            assert!(of("cpu") > 0.0 && of("faults") > 0.0, "{run:?}");
            assert!(!run.curve.is_empty());
        }
    }
    let page = place.text("mallard-results/latest/compare.html");
    assert!(page.contains("rss_end") && page.contains("closed loop"));
    row
}

macro_rules! presets {
    ($($test:ident: $preset:literal needs $programs:expr;)*) => {$(
        #[test]
        #[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
        fn $test() {
            if !lacks(&$programs) {
                race($preset, "glibc");
            }
        }
    )*};
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn redis_is_raced() {
    if !lacks(&["redis-server", "redis-benchmark", "redis-cli"]) {
        race("redis", &beside_mallard("redis-server"));
    }
}

presets! {
    nginx_is_raced: "nginx" needs ["/usr/sbin/nginx", "wrk"];
    memcached_is_raced: "memcached" needs ["memcached", "python3"];
    java_is_raced: "java" needs ["javac", "wrk"];
    node_is_raced: "node" needs ["node", "wrk"];
    python_is_raced: "python" needs ["python3", "wrk"];
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn postgres_is_raced() {
    if lacks(&["pgbench", "pg_isready", "unshare"]) {
        return;
    }
    // Postgres refuses root, and the preset makes another user of it by a namespace.
    let mut namespace = std::process::Command::new("unshare");
    let permitted = namespace.args(["--user", "true"]).output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        return skipped("this machine permits no user namespaces");
    }
    race("postgres", "glibc");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_server_under_its_load_is_diagnosed() {
    if lacks(&["redis-server", "redis-benchmark", "redis-cli"]) {
        return;
    }
    let place = Place::new();
    let words = ["diagnose", "--service", "redis", "--for", "1s", "--json"];
    let (code, stdout, stderr) = outcome(&mut place.mallard(&words));
    assert!(
        matches!(code, Some(SUCCESS | CANNOT_TELL)),
        "{stdout}{stderr}"
    );
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let calls = found.pointer("/figures/calls/mallocs");
    assert!(
        calls
            .and_then(serde_json::Value::as_f64)
            .is_some_and(|calls| calls > 0.0),
        "{stdout}"
    );
    assert_eq!(found["program"], "--service redis");
    assert!(stdout.contains("closed loop"), "{stdout}");
    // A run without the probe tells what it costs, and one with seccomp which calls are made.
    assert!(found["figures"]["probe_cost"].is_number(), "{stdout}");
    let counted = stdout.contains("in a separate run (seccomp)");
    let refused = stdout.contains("refused (seccomp");
    assert!(counted != refused, "{stdout}");
    let syscalls = found["figures"]["syscalls"].as_array().unwrap();
    assert_eq!(counted, !syscalls.is_empty(), "{stdout}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_server_under_its_load_is_recorded() {
    if lacks(&["redis-server", "redis-benchmark", "redis-cli"]) {
        return;
    }
    let place = Place::new();
    let words = ["record", "--service", "redis", "--for", "1s", "--settle"];
    let other = beside_mallard("redis-server");
    let words = [&words[..], &["100ms", "-a", &other]].concat();
    let stderr = place.mallard(&words).exits(SUCCESS).1;
    for part in [
        "recorded ",
        " 0 dropped · 0 out of order",
        "recording cost ",
        "CPU time a request (1 run without it)",
        "the load measured qps ",
        "closed loop",
        "next: mallard trace info redis.mtrace",
    ] {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
    let info = ["trace", "info", "--json", "redis.mtrace"];
    let stdout = place.mallard(&info).exits(SUCCESS).0;
    let info: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let processes = info["processes"].as_array().unwrap();
    // The load is no part of it.
    let is_load = |process: &serde_json::Value| {
        let program = process["process"]["program"].as_str().unwrap();
        !program.contains("redis") || program.contains("benchmark")
    };
    assert!(!processes.is_empty() && !processes.iter().any(is_load));
    // The server has ended with its run.
    assert_eq!(info["end"]["ended"], "with the program");
}

/// A description whose server is a shell script; `more` overrides keys.
fn describe(place: &Place, start: &str, more: &str) {
    let ready = if more.contains("ready =") {
        ""
    } else {
        "ready = { log = \"ready\", within = \"10s\" }"
    };
    let load = if more.contains("load =") {
        ""
    } else {
        "load = \"echo 'qps: 5'\""
    };
    let text = format!(
        "[service]\nstart = '''{start}'''\n{ready}\n{load}\nsettle = \"10ms\"\n{more}\n\
         [metrics]\nqps = {{ regex = 'qps: (\\d+)' }}\n"
    );
    fs::write(place.path().join("web.toml"), text).unwrap();
}

/// The processes whose working folder is this place: what a service left behind.
fn left(place: &Place) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let ours = all.filter(|entry| {
        let folder = fs::read_link(entry.path().join("cwd"));
        folder.is_ok_and(|folder| folder == place.path())
    });
    ours.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
        .collect()
}

/// Compares the service `web.toml` in one run, with more options.
fn compared(place: &Place, more: &[&str]) -> (Option<i32>, String, String) {
    let words = typed("compare --service web.toml -r 1 -w 0 -a glibc");
    outcome(&mut place.mallard(&[&words[..], more].concat()))
}

/// Compares the service `web.toml`, which must fail with this reason.
fn fails(place: &Place, parts: &[&str]) {
    let (code, stdout, stderr) = compared(place, &[]);
    assert_eq!(code, Some(FAILED), "{stdout}{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
    assert_eq!(left(place), [""; 0], "left behind");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn every_trouble_of_a_server_is_named_and_leaves_no_process() {
    let place = Place::new();
    let last = "the last words";
    for (start, more, reason) in [
        (
            "echo the last words >&2; exit 3",
            "",
            "the server ended before it was ready",
        ),
        (
            "echo the last words >&2; exec sleep 8002.5",
            "ready = { log = \"ready\", within = \"3s\" }",
            "the server was not ready within 3s: its output does not have 'ready'",
        ),
        (
            "echo ready; echo the last words >&2; until [ -e loaded ]; do sleep 0.05; done; exit 1",
            "load = \"touch loaded; exec sleep 8003.5\"",
            "the server ended under its load",
        ),
        (
            "trap '' TERM; echo ready; echo the last words >&2; sleep 8004.5; sleep 8004.5",
            "stop = { within = \"300ms\" }",
            "the server did not stop within 300ms of SIGTERM",
        ),
        (
            "setsid sleep 8005.5 & echo ready; echo the last words >&2; trap 'exit 0' TERM; while :; do sleep 0.05; done",
            "",
            "the server left processes behind, which were killed: sleep(",
        ),
        (
            "echo ready; exec sleep 8006.5",
            "load = \"echo the last words; exit 7\"",
            "ended with code 7",
        ),
        (
            "echo ready; exec sleep 8007.5",
            "load = \"echo the last words; exec sleep 8007.5\"\nload_within = \"3s\"",
            "did not end within 3s (service.load_within)",
        ),
        (
            "echo ready; exec sleep 8008.5",
            "load = \"echo the last words, qps 5\"",
            "the metric `qps` (regex 'qps: (\\d+)') matches nothing; the line that was read: the last words, qps 5",
        ),
        (
            "echo the last words >&2; exec sleep 8014.5",
            "ready = { command = \"exec sleep 8014.5\", within = \"3s\" }",
            "the server was not ready within 3s: 'exec sleep 8014.5' does not succeed",
        ),
        (
            "echo ready; exec sleep 8015.5",
            "setup = \"echo the last words; sleep 8015.5 & wait\"\nsetup_within = \"3s\"",
            "did not end within 3s (service.setup_within)",
        ),
        (
            "echo ready; exec sleep 8016.5",
            "prepare = \"echo the last words; sleep 8016.5 & wait\"\nprepare_within = \"3s\"",
            "did not end within 3s (service.prepare_within)",
        ),
        (
            "echo ready; exec sleep 8017.5",
            "stop = { command = \"echo the last words; exec sleep 8017.5\", within = \"3s\" }",
            "did not end within 3s (service.stop.within)",
        ),
    ] {
        describe(&place, start, more);
        fails(&place, &[reason, last]);
    }
}

#[test]
fn every_command_of_a_description_has_its_variables() {
    let place = Place::new();
    let check = |key: &str| format!("{key} = \"test $WORD = spoken\"\n");
    let ready = "ready = { command = \"test $WORD = spoken\", within = \"20s\" }\n";
    let more = "environment = { WORD = \"spoken\" }\n".to_owned() + ready;
    describe(
        &place,
        "exec sleep 8018.5",
        &(more + &check("setup") + &check("prepare")),
    );
    let words = ["service", "--try", "web.toml"];
    place.mallard(&words).assert().code(SUCCESS);
    assert_eq!(left(&place), [""; 0], "left behind");
}

#[test]
fn options_of_programs_are_refused_for_a_service_and_a_time_limit_is_kept() {
    let place = Place::new();
    let load = "load = \"exec sleep 8012.5\"";
    describe(
        &place,
        "echo ready; echo the last words >&2; exec sleep 8012.5",
        load,
    );
    let options: [&[&str]; 4] = [
        &["--prepare", "true"],
        &["--input", "web.toml"],
        &["--show-output"],
        &["--ignore-failure"],
    ];
    for more in options {
        let (code, _, stderr) = compared(&place, more);
        assert_eq!(code, Some(USAGE), "{stderr}");
        assert!(
            stderr.contains(more[0]) && stderr.contains("--service"),
            "{stderr}"
        );
    }
    let (code, _, stderr) = compared(&place, &["--timeout", "2s"]);
    assert_eq!(code, Some(FAILED), "{stderr}");
    for part in ["it did not finish within the time limit", "the last words"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(left(&place), [""; 0], "left behind");
}

#[test]
fn what_prepares_a_service_runs_once_for_each_run() {
    let place = Place::new();
    let prepare = "prepare = \"echo p >> prepared\"";
    describe(&place, "echo ready; exec sleep 8013.5", prepare);
    let words = typed("baseline save web --service web.toml --budget 1ms");
    place.mallard(&words).assert().code(SUCCESS);
    // One block: the subject and the anchor.
    assert_eq!(place.text("prepared"), "p\np\n");
}

#[test]
fn a_server_that_fails_leaves_no_recording_and_no_process() {
    let place = Place::new();
    let record = |more: &[&str]| {
        let words = ["record", "--service", "web.toml"];
        outcome(&mut place.mallard(&[&words[..], more].concat()))
    };
    // Found by the run without the recorder, before a file is made.
    let start = "echo starting; sleep 7654.4";
    describe(
        &place,
        start,
        "ready = { log = \"never\", within = \"200ms\" }",
    );
    let (code, _, stderr) = record(&[]);
    assert_eq!(code, Some(FAILED), "{stderr}");
    assert!(stderr.contains("was not ready within 200ms"), "{stderr}");
    assert!(!place.path().join("web.mtrace").exists());
    // Under its load: what was recorded until then is kept.
    let start = "echo ready; exec sleep 7654.4";
    describe(&place, start, "load = \"echo broken; exit 7\"");
    let (code, _, stderr) = record(&["--no-cost"]);
    assert_eq!(code, Some(FAILED), "{stderr}");
    assert!(stderr.contains("broken"), "{stderr}");
    assert!(place.path().join("web.mtrace").exists());
    assert_eq!(left(&place), [""; 0], "left behind");
    // Options that mean nothing together.
    let (code, _, stderr) = record(&["--for", "1s", "--seconds", "1"]);
    assert_eq!(code, Some(USAGE), "{stderr}");
    let stderr = place
        .mallard(&["record", "--no-cost", "--", "true"])
        .exits(USAGE)
        .1;
    assert!(stderr.contains("--no-cost is for a service"), "{stderr}");
}

#[test]
fn a_service_on_the_command_line_is_measured_too() {
    let place = Place::new();
    let words = [
        "compare",
        "--start",
        "sh -c 'echo ready; exec sleep 8010.5'",
        "--ready",
        "log:ready",
    ];
    let words = [
        &words[..],
        &["--load", "echo 'qps: 5'", "--metric", "qps=regex:qps: (.*)"],
    ]
    .concat();
    let words = [
        &words[..],
        &[
            "--settle",
            "10ms",
            "-r",
            "1",
            "-w",
            "0",
            "-a",
            "glibc,mallard",
        ],
    ]
    .concat();
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    assert!(stdout.contains("5.00 /s"), "{stdout}");
    assert_eq!(left(&place), [""; 0], "left behind");
}

#[test]
fn mistakes_in_a_description_are_usage_errors() {
    let place = Place::new();
    fs::write(place.path().join("web.toml"), "[service]\nstrat = \"x\"\n").unwrap();
    for (words, part) in [
        (
            &["compare", "--service", "web.toml"][..],
            "web.toml: line 2",
        ),
        (&["compare", "--service", "readis"], "did you mean `redis`?"),
        (
            &["compare", "--service", "redis", "--", "true"],
            "cannot be used with",
        ),
        (&["compare", "--start", "true"], "--ready"),
        (
            &["compare", "--seconds", "2", "--", "true"],
            "--seconds is for a service",
        ),
        (
            &["diagnose", "--service", "redis", "--how", "perf"],
            "--input and --how perf",
        ),
    ] {
        let stderr = place.mallard(words).exits(USAGE).1;
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn a_preset_is_printed_as_a_file_that_can_be_used() {
    let place = Place::new();
    let listed = place.mallard(&["service"]).exits(SUCCESS).0;
    for name in [
        "redis",
        "nginx",
        "postgres",
        "memcached",
        "java",
        "node",
        "python",
    ] {
        assert!(listed.contains(name), "{listed}");
    }
    let (_, text, _) = outcome(&mut place.mallard(&["service", "redis"]));
    fs::write(place.path().join("mine.toml"), text).unwrap();
    let said = place.mallard(&["service", "mine.toml"]).exits(SUCCESS).0;
    assert!(said.contains("valid description"), "{said}");
}
