//! Running programs (`programs/watched.c`) and readers of their statistics, by the crate that
//! `mallard top` uses.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, scratch};
use mallard_inspect::Error;
use mallard_inspect::core_file;
use mallard_inspect::image::Images;
use mallard_inspect::memory::core;
use mallard_inspect::request::{Consent, Request};
use mallard_inspect::scan::Scanner;
use mallard_inspect::snapshot::Snapshot;
use mallard_inspect::source::Reader;
use mallard_testing::{lacks, skipped};

/// What the program holds in blocks of 64 KiB.
const HELD_BYTES: u64 = 32 << 20;
/// The longest that anything here takes on a slow machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

struct Watched {
    _sandbox: Sandbox<'static>,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Watched {
    /// Starts the program and waits for its first line.
    fn start(what: &str, options: &str) -> (Watched, String) {
        let program = Source::new("watched.c")
            .flags(&["-O1", "-rdynamic"])
            .compile();
        let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
        let mut command = sandbox.command(&program);
        command.arg(what).env("MALLOC_CONF", options);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut watched = Watched {
            _sandbox: sandbox,
            child,
            output,
        };
        let line = watched.line();
        (watched, line)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the program; returns its last words.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {rest}");
        rest
    }
}

/// The number of the child, from the line with it.
fn child_of(line: &str) -> u32 {
    let number = line.strip_prefix("child ").expect(line);
    number.parse().expect("a number")
}

fn open(pid: u32) -> mallard_inspect::Result<Reader> {
    Reader::open(pid, &mut Images::default())
}

/// Waits until `get` gives something.
fn within<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(begun.elapsed() < STEP_TIMEOUT, "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// The statistics once there are some, and for which this holds.
fn read_until(pid: u32, holds: impl Fn(&Snapshot) -> bool) -> (Reader, Snapshot) {
    within("no such statistics", || {
        let reader = open(pid).ok()?;
        let snapshot = reader.read().ok()?;
        holds(&snapshot).then_some((reader, snapshot))
    })
}

/// Bytes of the program's blocks of 64 KiB.
fn held(snapshot: &Snapshot) -> u64 {
    let class = snapshot.classes.iter().find(|class| class.size == 64 << 10);
    class.map_or(0, |class| class.allocated)
}

fn expect_what_it_holds(snapshot: &Snapshot, expected: u64) {
    let totals = &snapshot.totals;
    assert_eq!(held(snapshot), expected, "{snapshot:?}");
    assert!(
        totals.allocated >= expected && totals.active >= totals.allocated,
        "{totals:?}"
    );
    assert!(
        totals.resident >= totals.active + totals.dirty + totals.metadata,
        "{totals:?}"
    );
    assert!(
        totals.peak >= totals.allocated && totals.threads == 1,
        "{totals:?}"
    );
    assert!(
        totals.taken > totals.given && totals.fills > 0,
        "{totals:?}"
    );
    let by_class: u64 = snapshot.classes.iter().map(|class| class.allocated).sum();
    assert_eq!(by_class, totals.allocated);
    let bins = snapshot.locks.iter().find(|lock| lock.name == "bins");
    assert!(bins.is_some_and(|lock| lock.taken > 0), "{snapshot:?}");
    assert_eq!(
        snapshot
            .arenas
            .iter()
            .map(|arena| arena.threads)
            .sum::<u64>(),
        1
    );
}

#[test]
fn a_process_that_shares_its_page_is_read_by_a_descriptor_and_takes_requests() {
    let (watched, _) = Watched::start("hold", "export_stats:true");
    let (reader, snapshot) = read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    assert!(reader.is_shared());
    expect_what_it_holds(&snapshot, HELD_BYTES);
    let ask = |request| reader.ask(request, Consent::SharedOnly, STEP_TIMEOUT);
    ask(Request::Start(Some(16))).expect("sampling starts");
    let (_, snapshot) = read_until(watched.pid(), |s| s.totals.samples > 0);
    assert_eq!(snapshot.totals.sampling(), Some(1 << 16));
    ask(Request::Stop).expect("sampling stops");
    read_until(watched.pid(), |s| s.totals.sampling().is_none());
    let purges = snapshot.totals.purges;
    ask(Request::Purge).expect("memory is returned");
    read_until(watched.pid(), |s| s.totals.purges > purges);
    let of_nothing = reader.read().expect("still there").count;
    read_until(watched.pid(), |s| s.count > of_nothing + 2);
    watched.end();
}

/// Whether a process has a handler of SIGSEGV.
fn catches_faults(pid: u32) -> bool {
    const SIGSEGV: u32 = 11;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("the system says it").trim(), 16);
    caught.expect("a number") >> (SIGSEGV - 1) & 1 != 0
}

#[test]
fn guards_are_switched_on_and_off_from_outside() {
    let (watched, _) = Watched::start("hold", "export_stats:true");
    let (reader, _) = read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    assert!(!catches_faults(watched.pid()));
    let ask = |request| reader.ask(request, Consent::SharedOnly, STEP_TIMEOUT);
    ask(Request::Guard).expect("blocks are guarded");
    assert!(catches_faults(watched.pid()));
    ask(Request::Unguard).expect("no more are");
    assert!(!catches_faults(watched.pid()));
    watched.end();
}

#[test]
fn a_process_of_some_size_is_read_from_its_memory_and_asked_with_consent_alone() {
    let (watched, _) = Watched::start("hold", "");
    let (reader, snapshot) = read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    assert!(!reader.is_shared());
    expect_what_it_holds(&snapshot, HELD_BYTES);
    let ask = |consent| reader.ask(Request::Start(None), consent, STEP_TIMEOUT);
    assert!(matches!(
        ask(Consent::SharedOnly),
        Err(Error::NeedsConsent(_))
    ));
    ask(Consent::WriteMemory).expect("sampling starts");
    read_until(watched.pid(), |s| s.totals.sampling() == Some(512 << 10));
    watched.end();
}

#[test]
fn small_and_unwilling_processes_have_no_page_and_others_no_mallard() {
    let (small, _) = Watched::start("small", "");
    assert!(matches!(open(small.pid()), Err(Error::NoPage(_))));
    let pid = small.pid();
    small.end();
    assert!(matches!(open(pid), Err(Error::Gone(_))));
    let (unwilling, _) = Watched::start("hold", "export_stats:false");
    sleep(Duration::from_millis(1500));
    assert!(matches!(open(unwilling.pid()), Err(Error::NoPage(_))));
    unwilling.end();
    let other = std::process::id();
    assert!(matches!(open(other), Err(Error::NoMallard(_))));
}

#[test]
fn the_child_of_a_fork_has_a_page_of_its_own() {
    for (what, options) in [
        ("fork", "export_stats:true"),
        ("fork", ""),
        ("clone", "export_stats:true"),
        ("clone", ""),
    ] {
        let (watched, line) = Watched::start(what, options);
        let child = child_of(&line);
        let half = HELD_BYTES / 2;
        let (reader, snapshot) = read_until(child, |s| held(s) == half);
        expect_what_it_holds(&snapshot, half);
        // The C library tells of no raw `clone`: the page is then in the child's memory.
        assert_eq!(reader.is_shared(), what == "fork" && !options.is_empty());
        let left = HELD_BYTES - (64 << 10);
        let (_, snapshot) = read_until(watched.pid(), |s| held(s) == left);
        expect_what_it_holds(&snapshot, left);
        watched.end();
    }
}

#[test]
fn a_child_without_a_page_of_its_own_is_not_taken_for_its_parent() {
    let (mut watched, _) = Watched::start("copies", "export_stats:true");
    read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    let input = watched.child.stdin.as_mut().expect("piped");
    input.write_all(b"\n").expect("it reads");
    let child = child_of(&watched.line());
    // It has the mapping of its parent's page, in which a request would be its parent's.
    assert!(matches!(open(child), Err(Error::NoPage(_))));
    watched.end();
}

#[test]
fn a_program_that_closes_all_descriptors_gets_the_numbers_it_expects_and_is_still_read() {
    let (watched, line) = Watched::start("closes", "export_stats:true");
    assert_eq!(line, "opened 3");
    let (reader, snapshot) = read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    assert!(!reader.is_shared());
    expect_what_it_holds(&snapshot, HELD_BYTES);
    watched.end();
}

#[test]
fn a_stopped_process_is_read_and_does_not_answer() {
    let (watched, _) = Watched::start("hold", "export_stats:true");
    let (reader, _) = read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(watched.pid() as i32).expect("a process");
        rustix::process::kill_process(pid, signal).expect("ours");
    };
    signal(rustix::process::Signal::STOP);
    expect_what_it_holds(&reader.read().expect("readable"), HELD_BYTES);
    let soon = Duration::from_millis(200);
    let asked = reader.ask(Request::Purge, Consent::SharedOnly, soon);
    assert!(matches!(asked, Err(Error::NoAnswer(_))), "{asked:?}");
    signal(rustix::process::Signal::CONT);
    reader
        .ask(Request::Start(None), Consent::SharedOnly, STEP_TIMEOUT)
        .expect("it goes on");
    watched.end();
}

#[test]
fn a_program_that_another_took_the_place_of_is_no_longer_read() {
    let (watched, line) = Watched::start("execs", "export_stats:true");
    assert_eq!(line, "ready");
    // The new program is small, but was asked to have a page; what it says is its own.
    if let Ok(snapshot) = open(watched.pid()).and_then(|reader| reader.read()) {
        assert!(snapshot.totals.allocated < HELD_BYTES, "{snapshot:?}");
    }
    watched.end();
}

#[test]
fn a_sandbox_without_the_calls_of_a_shared_page_is_no_trouble_by_default() {
    let (watched, line) = Watched::start("sealed", "");
    if line == "no filter" {
        return skipped("the kernel has no seccomp filters");
    }
    let (_, snapshot) = read_until(watched.pid(), |s| s.count > 3);
    expect_what_it_holds(&snapshot, HELD_BYTES);
    assert_eq!(watched.end(), "lives\n");
}

#[test]
fn a_scan_finds_them_among_all_processes() {
    let (watched, _) = Watched::start("hold", "export_stats:true");
    read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    let mut scanner = Scanner::default();
    for _ in 0..2 {
        let found = scanner.scan(None);
        let ours = found
            .iter()
            .find(|found| found.about.identity.pid == watched.pid());
        let snapshot = ours.expect("found").snapshot.as_ref().expect("readable");
        expect_what_it_holds(snapshot, HELD_BYTES);
        let me = std::process::id();
        assert!(found.iter().all(|found| found.about.identity.pid != me));
    }
    watched.end();
}

#[test]
fn a_core_file_has_the_statistics_of_the_process() {
    if lacks(&["gcore"]) {
        return;
    }
    for options in ["", "export_stats:true"] {
        let (watched, _) = Watched::start("hold", options);
        read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
        let folder = scratch("core").expect("a folder");
        let gcore = std::process::Command::new("gcore")
            .arg("-o")
            .arg(folder.path().join("core"))
            .arg(watched.pid().to_string())
            .output()
            .expect("gcore runs");
        let file = folder.path().join(format!("core.{}", watched.pid()));
        assert!(file.exists(), "{gcore:?}");
        let bytes = core::open(&file).expect("readable").expect("a core");
        let dead = core_file::read(&bytes, None).expect("it has a page");
        assert_eq!(
            (dead.pid, dead.name.as_str()),
            (watched.pid(), "watched-c-0")
        );
        expect_what_it_holds(&dead.snapshot, HELD_BYTES);
        let cut = core_file::read(&bytes[..bytes.len() / 20], None).expect_err("cut short");
        assert!(cut.to_string().contains("cut short"), "{cut}");
        watched.end();
    }
}

/// The writer runs in another process; a torn page would show classes that do not add up.
#[test]
fn a_page_is_read_a_hundred_thousand_times_beside_its_writer_without_a_torn_read() {
    const READS: u32 = 100_000;
    let (watched, _) = Watched::start("hold", "export_stats:true");
    let (reader, _) = read_until(watched.pid(), |s| s.totals.allocated >= HELD_BYTES);
    let (mut last, mut publications) = (0, 0);
    for _ in 0..READS {
        let snapshot = reader.read().expect("readable");
        let by_class: u64 = snapshot.classes.iter().map(|class| class.allocated).sum();
        assert_eq!(by_class, snapshot.totals.allocated);
        publications += u32::from(snapshot.count != last);
        last = snapshot.count;
    }
    assert!(publications > 1, "nothing was published meanwhile");
    watched.end();
}
