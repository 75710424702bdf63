//! `mallard diagnose --pid`: what is seen of a process that runs already.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use mallard_report::diagnosis::{Answer, Diagnosis, TroubleKey};
use mallard_testing::skipped;

use crate::place::*;

/// A process that is killed with the test.
pub struct Running(Child);

impl Running {
    /// Starts the program that is in this state, and waits until it is.
    pub fn start(place: &Place, what: &str, variables: &[(&str, &str)]) -> Running {
        let source = include_str!("../troubles/running.c");
        let program = place.compile("running", source, &["-O1", "-fno-builtin", "-pthread"]);
        let mut child = Command::new(program)
            .arg(what)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running(child)
    }

    pub fn diagnosed(&self, place: &Place) -> Diagnosis {
        self.diagnosed_with(place, &[])
    }

    fn diagnosed_with(&self, place: &Place, more: &[&str]) -> Diagnosis {
        let pid = self.0.id().to_string();
        let words = ["diagnose", "--json", "--for", "2s", "--pid", &pid];
        let words = [&words[..], more].concat();
        let (_, stdout, stderr) = outcome(&mut place.mallard(&words));
        Diagnosis::from_json(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a kind of evidence was had.
fn how<'a>(d: &'a Diagnosis, what: &str) -> &'a str {
    let way = d.ways.iter().find(|way| way.what == what);
    &way.unwrap_or_else(|| panic!("{what}: {}", d.json())).how
}

/// Whether a kind of evidence was permitted; says why not.
fn is_permitted(d: &Diagnosis, what: &str) -> bool {
    let refused = how(d, what).strip_prefix("not known: ");
    if let Some(reason) = refused {
        skipped(format_args!("{what}: {reason}"));
    }
    refused.is_none()
}

#[test]
fn a_process_on_mallard_tells_its_live_bytes_and_what_pins_its_memory() {
    let place = Place::new();
    let show = ["run", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let (_, library, _) = outcome(&mut place.mallard(&show));
    let variables = [
        ("LD_PRELOAD", library.trim()),
        ("MALLARD_CONF", "export_stats:true"),
    ];
    let process = Running::start(&place, "pinned", &variables);
    let d = process.diagnosed(&place);
    let heap = d.figures.heap.unwrap_or_else(|| panic!("{}", d.json()));
    // An eighth of 75 MB is live, on all of their pages, and up to 6 MB that come and go.
    assert!(
        heap.allocated < 20 << 20 && heap.active > 50 << 20,
        "{}",
        d.json()
    );
    let live = d.timeline.last().unwrap().live;
    assert!((0..20 << 20).contains(&live), "{}", d.json());
    assert_eq!(d.answer, Answer::Yes, "{}", d.json());
    assert!(
        d.troubles.iter().any(|t| t.key == TroubleKey::Pinned),
        "{}",
        d.json()
    );
    assert!(how(&d, "live bytes").contains("page of statistics"));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn page_faults_are_told_apart_by_what_lies_at_their_addresses() {
    let place = Place::new();
    let threshold = [("MALLOC_TRIM_THRESHOLD_", "131072")];
    let share = |d: &Diagnosis, kinds: &[&str]| -> f64 {
        let of = d.figures.fault_kinds.iter();
        of.filter(|(kind, _)| kinds.contains(&kind.as_str()))
            .map(|(_, share)| share)
            .sum()
    };
    let d = Running::start(&place, "mapped", &threshold).diagnosed(&place);
    if !is_permitted(&d, "faults by kind") {
        return;
    }
    let heap = ["heap", "mappings gone since"];
    assert!(share(&d, &heap) > 0.9, "{}", d.json());
    assert!(how(&d, "live bytes").contains("does not run on Mallard"));
    let d = Running::start(&place, "file", &[]).diagnosed(&place);
    let file = ["files", "mappings gone since"];
    assert!(share(&d, &file) > 0.9, "{}", d.json());
    assert!(share(&d, &["files"]) > 0.2, "{}", d.json());
    assert!(
        !d.troubles.iter().any(|t| t.key == TroubleKey::Growth),
        "{}",
        d.json()
    );
}

#[test]
fn system_calls_of_a_process_are_counted_by_who_makes_them() {
    let place = Place::new();
    let threshold = [("MALLOC_MMAP_THRESHOLD_", "131072")];
    let process = Running::start(&place, "mapped", &threshold);
    let d = process.diagnosed(&place);
    if !is_permitted(&d, "system calls") {
        return;
    }
    let of = |name: &str| {
        let call = d
            .figures
            .syscalls
            .iter()
            .find(|(known, _, _)| known == name);
        call.map_or((0.0, 0.0), |(_, inside, outside)| (*inside, *outside))
    };
    let (inside, outside) = of("munmap");
    assert!(inside > 10.0 && outside < inside / 10.0, "{}", d.json());
    assert!(
        d.troubles.iter().any(|t| t.key == TroubleKey::Mmap),
        "{}",
        d.json()
    );
}

#[test]
fn tracepoints_that_cannot_be_read_are_said_so() {
    let place = Place::new();
    let d = Running::start(&place, "mapped", &[]).diagnosed(&place);
    let is_there = [
        "/sys/kernel/tracing/events",
        "/sys/kernel/debug/tracing/events",
    ]
    .iter()
    .any(|folder| fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()));
    let said = how(&d, "system calls");
    assert_eq!(said.starts_with("not known: "), !is_there, "{said}");
}

#[test]
fn threads_that_are_stopped_for_a_moment_tell_where_they_compute_and_go_on() {
    let place = Place::new();
    let threshold = [("MALLOC_MMAP_THRESHOLD_", "131072")];
    let process = Running::start(&place, "mapped", &threshold);
    let d = process.diagnosed_with(&place, &["--how", "ptrace"]);
    let said = how(&d, "CPU share");
    if said.starts_with("ptrace:") {
        return skipped(said);
    }
    assert!(said.contains("were stopped for a moment"), "{said}");
    assert!(d.figures.samples > 0, "{}", d.json());
    // It is let go: nothing traces it, and it computes.
    let pid = process.0.id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
    let used = || mallard_procfs::Stat::of(pid).unwrap().cpu_ticks();
    let before = used();
    while used() <= before {
        std::thread::yield_now();
    }
    let stderr = place
        .mallard(&["diagnose", "--how", "ptrace", "true"])
        .exits(USAGE)
        .1;
    assert!(stderr.contains("--pid"), "{stderr}");
}
