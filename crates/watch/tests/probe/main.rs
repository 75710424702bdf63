//! The probe under real allocators and programs: it changes nothing that a program shows, and
//! counts exactly.

mod aarch64;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mallard_allocators::{Allocator, Catalog, Settings, Standing, environment};
use mallard_testing::{lacks, not_installed, skipped};
use mallard_trace::Writer;
use mallard_trace::description::Start;
use mallard_watch::folder::{Ask, Folder, Record};
use mallard_watch::recorder::{Clock, Drain, Ended, Limits};
use mallard_watch::segments::{self, Segment};
use mallard_watch::{PROBE, PROBE_NAME, layout};

/// A folder with the probe and the test programs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(PROBE_NAME), PROBE).unwrap();
        Place(folder)
    }

    fn compile(&self, source: &str, compiler: &str) -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/probe")
            .join(source);
        let program = self.0.path().join(source.split('.').next().unwrap());
        let mut command = Command::new(compiler);
        command
            .args(["-O1", "-fno-builtin", "-pthread", "-o"])
            .arg(&program)
            .arg(path);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        program
    }

    /// Runs a command on an allocator with the probe before it.
    fn observed(&self, command: &mut Command, on: &Allocator) -> (Output, Folder) {
        let folder = Folder::new(
            Ask {
                trim_at_exit: true,
                ..Ask::default()
            },
            self.0.path(),
        );
        let folder = folder.unwrap();
        plain(command, on);
        let probe = self.0.path().join(PROBE_NAME);
        let theirs = environment(on, None)
            .into_iter()
            .find(|(name, _)| name == "LD_PRELOAD");
        let preload = match theirs {
            Some((_, library)) => format!("{}:{library}", probe.display()),
            None => probe.display().to_string(),
        };
        command
            .env("LD_PRELOAD", preload)
            .env(layout::VARIABLE, folder.path());
        (command.output().unwrap(), folder)
    }
}

fn plain<'a>(command: &'a mut Command, on: &Allocator) -> &'a mut Command {
    command.env_remove("LD_PRELOAD").envs(environment(on, None))
}

/// The allocators that are ready here.
fn allocators() -> Vec<Allocator> {
    let mut catalog = Catalog::new(Settings::default());
    let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    if Path::new(jemalloc).exists() {
        catalog
            .add_custom(&format!("system-jemalloc={jemalloc}"))
            .unwrap();
    } else {
        not_installed("libjemalloc.so.2");
    }
    let names: Vec<String> = catalog.usual_names().map(str::to_owned).collect();
    let (mut ready, mut absent) = (Vec::new(), Vec::new());
    for name in names {
        match catalog.look(&name) {
            Ok(Standing::Ready(allocator)) => ready.push(allocator),
            _ => absent.push(name),
        }
    }
    if !absent.is_empty() {
        skipped(format_args!("not built here: {}", absent.join(", ")));
    }
    let names: Vec<&str> = ready
        .iter()
        .map(|allocator| allocator.name.as_str())
        .collect();
    eprintln!("on {names:?}");
    assert!(ready.len() >= 2, "glibc and Mallard are always there");
    ready
}

fn found(folder: &Folder) -> Vec<Segment> {
    segments::find_new(folder.path(), &[]).unwrap()
}

fn number(output: &Output, what: &str) -> i64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{what} ")));
    let shown = || format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    line.unwrap_or_else(|| panic!("no {what}: {}", shown()))
        .parse()
        .unwrap()
}

/// Live bytes that the program has from its start, which it does not count itself: measured in a
/// run in which it does nothing else.
fn at_start(place: &Place, program: &Path, on: &Allocator) -> i64 {
    live_after(place, program, on, "errno")
}

fn live_after(place: &Place, program: &Path, on: &Allocator, what: &str) -> i64 {
    let (output, folder) = place.observed(Command::new(program).arg(what), on);
    assert!(output.status.success(), "{output:?}");
    let counts = found(&folder)[0].counts();
    counts.live
}

#[test]
fn live_bytes_are_exact_on_every_allocator() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    for on in allocators() {
        let start = at_start(&place, &program, &on);
        for what in ["one", "threads"] {
            let (output, folder) = place.observed(Command::new(&program).arg(what), &on);
            assert!(output.status.success(), "{}: {output:?}", on.name);
            let segments = found(&folder);
            assert_eq!(segments.len(), 1, "{}", on.name);
            let counts = segments[0].counts();
            let expected = number(&output, "live");
            // A thread's own block of the loader's and of the allocator's may come or go.
            let difference = counts.live - start - expected;
            let slack = if what == "threads" { 4096 } else { 0 };
            assert!(
                difference.abs() <= slack,
                "{} {what}: {} of {expected}, start {start}",
                on.name,
                counts.live
            );
            assert!(
                counts.calls[0] > 1000 && counts.calls[4] > 1000,
                "{counts:?}"
            );
            assert_eq!(counts.failed, 0);
            let served = segments[0].allocator();
            match &on.file {
                Some(file) => assert_eq!(Path::new(&served), file),
                None => assert!(served.ends_with("/libc.so.6"), "{served}"),
            }
        }
    }
}

#[test]
fn the_peak_of_a_heap_that_nobody_looked_at_is_counted() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    for on in allocators() {
        let start = at_start(&place, &program, &on);
        let (output, folder) = place.observed(Command::new(&program).arg("peak"), &on);
        assert!(output.status.success(), "{}: {output:?}", on.name);
        let peak = found(&folder)[0].peak_live() - start;
        // Twenty blocks of a million bytes; an allocator may round each up by an eighth.
        let most = 20_000_000 / 8 * 9 + 4 * layout::LIVE_STEP_BYTES;
        assert!(
            (20_000_000 - layout::LIVE_STEP_BYTES..most).contains(&peak),
            "{}: {peak}",
            on.name
        );
    }
}

#[test]
fn the_share_of_blocks_that_another_thread_frees_is_that_of_all_blocks() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    for on in allocators() {
        let (output, folder) = place.observed(Command::new(&program).arg("elsewhere"), &on);
        assert!(output.status.success(), "{}: {output:?}", on.name);
        let counts = found(&folder)[0].counts();
        let (here, elsewhere) = (counts.freed_here, counts.freed_elsewhere);
        let share = elsewhere as f64 / (here + elsewhere) as f64;
        // Of some 5,000 blocks that are followed, ten standard errors.
        assert!(
            (share - 0.5).abs() < 0.07,
            "{}: {here} {elsewhere}",
            on.name
        );
        assert!(here + elsewhere > 3000, "{}: {here} {elsewhere}", on.name);
    }
}

#[test]
fn a_forked_child_counts_from_its_parent_s_live_bytes() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    for on in allocators() {
        let start = at_start(&place, &program, &on);
        // The child ends by _exit: what an allocator frees when a program ends is still there.
        let unfreed = live_after(&place, &program, &on, "leave");
        let (output, folder) = place.observed(Command::new(&program).arg("fork"), &on);
        assert!(output.status.success(), "{}: {output:?}", on.name);
        let segments = found(&folder);
        assert_eq!(segments.len(), 2, "{}", on.name);
        for segment in &segments {
            let (name, start) = match segment
                .header()
                .forked_from
                .load(std::sync::atomic::Ordering::Relaxed)
            {
                0 => ("parent", start),
                _ => ("child", unfreed),
            };
            let difference = segment.counts().live - start - number(&output, name);
            // Other allocators may keep a block for the child's thread: snmalloc has one of 32
            // bytes.
            let exact = ["glibc", "mallard"].contains(&on.name.as_str());
            let slack = if exact { 0 } else { 256 };
            assert!(
                difference.abs() <= slack,
                "{} {name}: {difference}",
                on.name
            );
        }
    }
}

#[test]
fn ten_thousand_short_threads_share_a_few_slots() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    for on in allocators() {
        let (output, folder) = place.observed(Command::new(&program).arg("short"), &on);
        assert!(output.status.success(), "{}: {output:?}", on.name);
        let segments = found(&folder);
        let counts = segments[0].counts();
        assert_eq!(counts.threads, 10_001, "{}", on.name);
        assert!(counts.calls[0] >= 10_000, "{}: {counts:?}", on.name);
        assert!(
            segments[0].slots().len() < 64,
            "{}: {}",
            on.name,
            segments[0].slots().len()
        );
    }
}

#[test]
fn a_crash_and_an_exec_lose_nothing() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    let glibc = &allocators()[0];
    let start = at_start(&place, &program, glibc);
    let (output, folder) = place.observed(Command::new(&program).arg("crash"), glibc);
    assert!(!output.status.success());
    let segment = &found(&folder)[0];
    assert_eq!(segment.counts().live - start, number(&output, "live"));
    assert!(!segment.ended());

    let (output, folder) = place.observed(Command::new(&program).arg("exec"), glibc);
    assert!(output.status.success(), "{output:?}");
    let segments = found(&folder);
    assert_eq!(segments.len(), 2, "each image is one of its own");
    assert_eq!(segments[0].pid, segments[1].pid);
    assert_eq!(segments[1].counts().live - start, number(&output, "live"));
    assert!(segments[1].ended() && segments[1].end().is_some());
}

#[test]
fn errno_is_kept_and_operators_throw_through_the_probe() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    let operators = place.compile("operators.cpp", "c++");
    for on in allocators() {
        let (output, _folder) = place.observed(Command::new(&program).arg("errno"), &on);
        assert_eq!(number(&output, "errno"), 77, "{}", on.name);
        assert_eq!(number(&output, "none"), 1, "{}", on.name);
        let alone = plain(&mut Command::new(&operators), &on).output().unwrap();
        let alone_says = String::from_utf8_lossy(&alone.stdout);
        if alone_says.trim() != "20000 10 1" {
            assert!(!["glibc", "mallard"].contains(&on.name.as_str()));
            skipped(format_args!("operator new of {} does not throw", on.name));
            continue;
        }
        let (output, folder) = place.observed(&mut Command::new(&operators), &on);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            (text.trim(), output.status.code()),
            ("20000 10 1", Some(0)),
            "{}",
            on.name
        );
        let counts = found(&folder)[0].counts();
        assert!(
            counts.calls[0] > 20_000 && counts.failed >= 10,
            "{}: {counts:?}",
            on.name
        );
    }
}

#[test]
fn real_programs_say_the_same_with_the_probe() {
    let place = Place::new();
    let source = place.0.path().join("x.cpp");
    fs::write(
        &source,
        "#include <map>\n#include <string>\nstd::map<std::string, int> m;\n",
    )
    .unwrap();
    let source = source.display().to_string();
    let programs: [&[&str]; 7] = [
        &[
            "python3",
            "-c",
            "print(sum(len(str(i)) for i in range(200000)))",
        ],
        &[
            "sqlite3",
            ":memory:",
            "create table t(a); with recursive c(x) as (select 1 union all \
          select x + 1 from c where x < 50000) insert into t select x from c; select sum(a) from t;",
        ],
        &["g++", "-S", "-O1", "-o", "-", &source],
        &[
            "node",
            "-e",
            "let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); console.log(a.length)",
        ],
        &["ruby", "-e", "puts (1..100000).map(&:to_s).join.size"],
        &[
            "bash",
            "-c",
            "for i in 1 2 3; do (echo $i | cat) & wait; done; ls / | sort | wc -l",
        ],
        &["redis-server", "--version"],
    ];
    let allocators = allocators();
    for words in programs.into_iter().filter(|words| !lacks(&words[..1])) {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        for on in allocators.iter().take(3) {
            let alone = plain(&mut Command::new(words[0]), on)
                .args(&words[1..])
                .output()
                .unwrap();
            let (observed, folder) = place.observed(&mut command, on);
            assert_eq!(
                alone.status, observed.status,
                "{words:?} on {}: {observed:?}",
                on.name
            );
            assert_eq!(alone.stdout, observed.stdout, "{words:?} on {}", on.name);
            let calls: u64 = found(&folder).iter().map(|s| s.counts().calls[0]).sum();
            assert!(calls > 10, "{words:?} on {}: {calls} calls", on.name);
        }
    }
}

/// A file on a disk that is soon full.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let place = Place::new();
    let program = place.compile("counted.c", "cc");
    let clock = Clock::measured();
    let ask = Ask {
        record: Some(Record {
            chunks: 8,
            lossy: false,
            monotonic: clock.is_monotonic(),
        }),
        ..Ask::default()
    };
    let folder = Folder::new(ask, place.0.path()).unwrap();
    let mut child = Command::new(&program)
        .arg("threads")
        .env("LD_PRELOAD", place.0.path().join(PROBE_NAME))
        .env(layout::VARIABLE, folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let writer = Writer::new(Full(8000), &Start::default()).unwrap();
    let drain = Drain::new(folder.path(), clock, writer);
    let (outcome, file) = drain.until_end_of(child.id(), Limits::default(), || false, |_, _| {});
    assert!(matches!(outcome.ended, Ended::Refused(_)), "{outcome:?}");
    assert!(file.is_none() && outcome.bytes <= 8000 && outcome.processes == 1);
    assert!(child.wait().unwrap().success(), "the program goes on");
}
