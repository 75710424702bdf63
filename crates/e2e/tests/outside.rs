//! Profiles that are read out of processes and core files, without their help.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, Service, scratch};
use mallard_procfs::{Stat, about, family};
use mallard_profile::model::Profile;
use mallard_profile::names::{self, NamingOutcome, Options};
use mallard_profile::process::live::Process;
use mallard_profile::process::{Error, Reading, core};
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};
use mallard_testing::{lacks, skipped};

/// A running program, which ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

fn program() -> PathBuf {
    Source::new("held.c").flags(&["-O1"]).compile()
}

fn preloaded(program: &Path, way: &str, conf: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(way)
        .env("LD_PRELOAD", &Library::release().shared)
        .env("MALLOC_CONF", conf)
        .stdout(Stdio::piped());
    command
}

/// Starts the program and waits until it holds its blocks.
fn start(mut command: Command) -> Running {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Running(child)
}

/// The longest that the end of a program takes on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(60);

const EVERY_BLOCK_CONF: &str = "prof:true,lg_prof_sample:0";

fn read(running: &Running) -> Reading {
    Process::open(running.0.id()).unwrap().read().unwrap()
}

fn named(reading: &mut Reading, process: Option<u32>) -> NamingOutcome {
    let process = process.map(|pid| PathBuf::from(format!("/proc/{pid}")));
    let options = Options {
        root: process.as_ref().map(|process| process.join("root")),
        process,
        ..Options::default()
    };
    names::name(&mut reading.profile, &options)
}

/// Blocks and bytes of a function.
fn of(profile: &Profile, view: View, function: &str) -> (i128, i128) {
    let figures = view.figures(profile).unwrap();
    let all = rows(profile, figures, By::Function);
    let row = all.iter().find(|row| row.key.starts_with(function));
    row.map_or((0, 0), |row| {
        (row.blocks(figures).unwrap_or(0), row.main(figures))
    })
}

#[track_caller]
fn has_the_blocks(profile: &Profile) {
    assert_eq!(of(profile, View::Live, "small_ones"), (1000, 112_000));
    assert_eq!(of(profile, View::Live, "large_ones"), (10, 10 * 114_688));
    assert_eq!(of(profile, View::Allocs, "small_ones"), (1000, 112_000));
    assert_eq!(of(profile, View::Peak, "large_ones").1, 10 * 114_688);
    assert_eq!(of(profile, View::Waste, "small_ones").1, 12_000);
}

#[test]
fn a_waiting_and_a_stopped_process_are_read() {
    let running = start(preloaded(&program(), "wait", EVERY_BLOCK_CONF));
    for signal in ["-CONT", "-STOP"] {
        running.signal(signal);
        let mut reading = read(&running);
        let outcome = named(&mut reading, Some(running.0.id()));
        has_the_blocks(&reading.profile);
        assert!(reading.notes.is_empty(), "{:?}", reading.notes);
        // Parca and other databases of profiles sort by it.
        assert!(reading.profile.time_nanos > 0);
        let held = outcome
            .lacks
            .iter()
            .any(|lack| lack.module.contains("held"));
        assert!(!held, "{:?}", outcome.lacks);
        let figures = View::Live.figures(&reading.profile).unwrap();
        let threads = rows(&reading.profile, figures, By::Thread);
        assert!(threads[0].key.starts_with("held-c-"), "{}", threads[0].key);
    }
    running.signal("-CONT");
}

#[test]
fn static_programs_are_read() {
    let library = Library::release();
    // gcc leaves the index of the tables out of static programs, unless it is told.
    for form in [&["-static-pie"][..], &["-static", "-Wl,--eh-frame-hdr"]] {
        let program = Source::new("held.c")
            .flags(&[&["-O1"], form].concat())
            .link(library.archive())
            .compile();
        let mut command = Command::new(&program);
        // The C library allocates before it can tell where the tables lie.
        command
            .env("MALLOC_CONF", EVERY_BLOCK_CONF)
            .stdout(Stdio::piped());
        let running = start(command);
        let mut reading = read(&running);
        named(&mut reading, Some(running.0.id()));
        has_the_blocks(&reading.profile);
    }
}

#[test]
fn a_static_program_without_an_index_of_its_tables_is_told() {
    let program = Source::new("held.c")
        .flags(&["-O1", "-static"])
        .link(Library::release().archive())
        .compile();
    let mut command = Command::new(&program);
    command
        .env("MALLOC_CONF", EVERY_BLOCK_CONF)
        .stdout(Stdio::piped());
    let running = start(command);
    let mut reading = read(&running);
    let outcome = named(&mut reading, Some(running.0.id()));
    let figures = View::Live.figures(&reading.profile).unwrap();
    let blocks = reading.profile.total(figures.blocks.unwrap());
    assert!(blocks >= 1010, "sizes and threads are known: {blocks}");
    let lacks = outcome.lacks.iter().map(ToString::to_string);
    let lacks: Vec<String> = lacks
        .filter(|line| line.contains("unwind tables"))
        .collect();
    assert!(
        lacks.len() == 1 && lacks[0].contains("-Wl,--eh-frame-hdr"),
        "{:?}",
        outcome.lacks
    );
}

#[test]
fn a_program_that_was_deleted_keeps_its_names_and_is_told() {
    let folder = scratch("deleted").unwrap();
    let copy = folder.path().join("gone");
    // `cp` writes it, not this process: a child that another test starts would inherit the open
    // file, and a program that is open for writing cannot be run.
    let copied = Command::new("cp").arg(program()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let running = start(preloaded(&copy, "wait", EVERY_BLOCK_CONF));
    fs::remove_file(&copy).unwrap();
    let mut reading = read(&running);
    let outcome = named(&mut reading, Some(running.0.id()));
    has_the_blocks(&reading.profile);
    let lack = outcome.lacks.iter().find(|lack| lack.module == "gone");
    let lack = lack.expect("the module is told").to_string();
    assert!(lack.contains("deleted or replaced"), "{lack}");
}

#[test]
fn figures_of_sites_at_rest_are_exact_beside_threads_that_sample_all_the_time() {
    let running = start(preloaded(&program(), "busy", EVERY_BLOCK_CONF));
    let process = Process::open(running.0.id()).unwrap();
    for _ in 0..20 {
        let mut reading = process.read().unwrap();
        named(&mut reading, Some(running.0.id()));
        let profile = &reading.profile;
        assert_eq!(of(profile, View::Live, "small_ones"), (1000, 112_000));
        assert_eq!(of(profile, View::Live, "large_ones"), (10, 10 * 114_688));
        // Three threads have 64 blocks of up to 25 KiB each.
        let passing = of(profile, View::Live, "passing");
        assert!((0..=3 * 64).contains(&passing.0), "{passing:?}");
    }
}

/// The process below this one that runs the program.
fn below(pid: u32, program: &str) -> Option<u32> {
    let mut family = family::of(pid).into_iter();
    family.find(|process| about::name(*process).is_some_and(|name| name == program))
}

#[test]
fn a_process_of_a_container_is_read_with_the_files_of_its_own_root() {
    let script = "mount -t tmpfs none \"$1\" && cp \"$2\" \"$1/inner\" && exec env \
                  LD_PRELOAD=\"$3\" MALLOC_CONF=prof:true,lg_prof_sample:0 \"$1/inner\" wait";
    let folder = scratch("container").unwrap();
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--"]);
        command.args(words);
        command
    };
    match unshare(&["true"]).output() {
        Ok(tried) if tried.status.success() => {}
        Ok(tried) => {
            let why = String::from_utf8_lossy(&tried.stderr);
            return skipped(why.trim_end());
        }
        Err(error) => return skipped(format_args!("unshare: {error}")),
    }
    let mut command = unshare(&["sh", "-c", script, "sh"]);
    command
        .arg(folder.path())
        .arg(program())
        .arg(&Library::release().shared)
        .stdout(Stdio::piped());
    let running = start(command);
    assert!(
        !folder.path().join("inner").exists(),
        "it is in there alone"
    );
    let pid = below(running.0.id(), "inner").expect("it runs");
    let mut reading = Process::open(pid).unwrap().read().unwrap();
    // The number that the process itself knows: perf's map in its /tmp has it.
    assert!(
        reading.pid.is_some_and(|inside| inside < 10),
        "{:?}",
        reading.pid
    );
    let outcome = named(&mut reading, Some(pid));
    has_the_blocks(&reading.profile);
    assert!(outcome.lacks.is_empty(), "{:?}", outcome.lacks);
    // Threads have the numbers by which they are found here.
    let figures = View::Live.figures(&reading.profile).unwrap();
    let threads = rows(&reading.profile, figures, By::Thread);
    assert_eq!(threads[0].key, format!("inner {pid}"));
}

#[test]
fn a_server_is_read_while_it_serves() {
    if lacks(&["redis-server", "redis-cli"]) {
        return;
    }
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    let mut command = sandbox.command("redis-server");
    command
        .args(["--port", "0", "--unixsocket", "redis.sock", "--save", ""])
        // Debian's redis has jemalloc in it, which would read MALLOC_CONF, too.
        .env(
            "MALLARD_CONF",
            "prof:true,lg_prof_sample:12,prof_seed:1,export_stats:true",
        );
    let mut server = Service::start(&sandbox, "redis", &mut command).unwrap();
    server.await_socket(&sandbox.path("redis.sock")).unwrap();
    let fill = "for i = 1, 20000 do redis.call('SET', 's' .. i, string.rep('v', 1000)) end";
    let ask = |words: &[&str]| {
        let mut client = sandbox.plain_command("redis-cli");
        sandbox.run(client.args(["-s", "redis.sock"]).args(words))
    };
    ask(&["EVAL", fill, "0"]).unwrap();
    let filled = Instant::now();
    let pid = server.processes()[0];
    let process = Process::open(pid).unwrap();
    // It counts when it allocates, a few times a second: the figure of a moment before the end is
    // of fewer values.
    let mut reading = loop {
        ask(&["INFO"]).unwrap();
        let since = filled.elapsed();
        let reading = process.read().unwrap();
        if reading.profile.allocated().is_some_and(|of| of.age < since) {
            break reading;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    named(&mut reading, Some(pid));
    let figures = View::Live.figures(&reading.profile).unwrap();
    let live = reading.profile.total(figures.main) as f64;
    // Some 5,000 samples of what the values take: an error of four in a hundred would be three
    // deviations.
    let values = 20_000.0 * 1024.0;
    let allocated = reading.profile.allocated().unwrap().bytes as f64;
    assert!(live > values && live < values * 2.0, "{live}");
    assert!(
        (live / allocated - 1.0).abs() < 0.1,
        "{live} of {allocated}"
    );
    ask(&["SHUTDOWN", "NOSAVE"]).unwrap();
    server.await_end().unwrap();
}

#[test]
fn a_site_that_pins_slabs_fragments_the_heap_most() {
    let running = start(preloaded(&program(), "pins", EVERY_BLOCK_CONF));
    let mut reading = read(&running);
    named(&mut reading, Some(running.0.id()));
    let figures = View::Frag.figures(&reading.profile).unwrap();
    let all = rows(&reading.profile, figures, By::Function);
    assert!(all[0].key.starts_with("pin "), "{}", all[0].key);
    // Each of 3,750 blocks keeps the other 15 of its page.
    let expected = 3750.0 * 15.0 * 256.0;
    let found = all[0].main(figures) as f64;
    assert!(
        (found / expected - 1.0).abs() < 0.1,
        "{found} of {expected}"
    );
}

#[test]
fn a_core_is_read_and_one_that_is_cut_short_is_told() {
    if lacks(&["gcore"]) {
        return;
    }
    let folder = scratch("core").unwrap();
    let running = start(preloaded(&program(), "wait", EVERY_BLOCK_CONF));
    let file = folder.path().join("core");
    let pid = running.0.id().to_string();
    let gcore = Command::new("gcore")
        .arg("-o")
        .args([&file, Path::new(&pid)])
        .output()
        .unwrap();
    let file = folder.path().join(format!("core.{pid}"));
    assert!(file.exists(), "{}", String::from_utf8_lossy(&gcore.stderr));
    drop(running);
    let mut reading = core::open(&file, None).unwrap().expect("it is a core");
    named(&mut reading, None);
    has_the_blocks(&reading.profile);
    assert!(reading.profile.time_nanos > 0);
    let bytes = fs::read(&file).unwrap();
    let cut = core::read(&bytes[..bytes.len() / 20], None).unwrap_err();
    assert!(
        cut.to_string().starts_with("the core file is cut short"),
        "{cut}"
    );
}

/// Returns once a child that nobody has waited for has ended.
fn await_zombie(pid: u32) {
    let begun = Instant::now();
    loop {
        let stat = Stat::of(pid).unwrap();
        if stat.has_ended() {
            return;
        }
        assert!(begun.elapsed() < END_TIMEOUT, "{stat:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_be_read_is_told_in_one_line() {
    let error = |pid: u32| Process::open(pid).err().unwrap().to_string();
    // Linux gives no number above 4,194,304 to a process.
    assert_eq!(error(4_194_305), "there is no process 4194305");
    let own = error(std::process::id());
    assert!(own.contains("does not run on Mallard"), "{own}");
    let off = start(preloaded(&program(), "wait", ""));
    let never = error(off.0.id());
    assert!(
        never.contains("sampling was never on") && never.contains("prof:true"),
        "{never}"
    );
    let mut child = Command::new("true").spawn().unwrap();
    await_zombie(child.id());
    let ended = Process::open(child.id()).err().unwrap();
    assert!(matches!(ended, Error::Zombie(..)), "{ended}");
    child.wait().unwrap();
}
