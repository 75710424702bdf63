//! `mallard replay --process all`: recorded forks replay as forks, and each process does what was
//! recorded of it.

use crate::place::typed;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::place::*;

/// Blocks of the program have at least this size; those of the replay itself are smaller.
const BLOCK_BYTES_MIN: u64 = 5000;

/// One line of `trace dump`.
#[derive(Clone, Copy)]
struct Line<'a> {
    when: f64,
    thread: u32,
    kind: &'a str,
    address: &'a str,
    size: Option<u64>,
}

/// The blocks of a process by address at some time: those that it has inherited, and its own.
type Blocks<'a> = HashMap<&'a str, u64>;

/// What a thread did, in order: kind of call, and size of the block.
type Calls<'a> = Vec<(&'a str, u64)>;

struct Recorded<'a> {
    lines: BTreeMap<u64, Vec<Line<'a>>>,
    /// The parent of each process that was forked, and when.
    forks: BTreeMap<u64, (u64, f64)>,
}

impl<'a> Recorded<'a> {
    fn read(dump: &'a str, info: &Value) -> Recorded<'a> {
        let mut lines: BTreeMap<u64, Vec<Line>> = BTreeMap::new();
        for line in dump.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (process, thread) = words[1].split_once('/').unwrap();
            let has_address = words.get(3).is_some_and(|word| word.starts_with("0x"));
            let own = lines.entry(process.parse().unwrap()).or_default();
            own.push(Line {
                when: words[0].parse().unwrap(),
                thread: thread.parse().unwrap(),
                kind: words[2],
                address: if has_address { words[3] } else { "" },
                size: words.get(4).and_then(|word| word.parse().ok()),
            });
        }
        let processes = info["processes"].as_array().unwrap().iter();
        let forks = processes.filter_map(|process| {
            let told = &process["process"];
            let since = told["since"].as_u64()? as f64 * 16e-9;
            let parent = told["forked_from"].as_u64()?;
            Some((told["number"].as_u64()?, (parent, since)))
        });
        Recorded {
            forks: forks.collect(),
            lines,
        }
    }

    /// Follows a process up to a time; `call` gets each call and the size of its block.
    fn follow(&self, process: u64, until: f64, call: &mut dyn FnMut(&Line<'a>, u64)) -> Blocks<'a> {
        let mut blocks = match self.forks.get(&process) {
            Some((parent, since)) => self.follow(*parent, *since, &mut |_, _| {}),
            None => Blocks::new(),
        };
        for line in self.lines.get(&process).into_iter().flatten() {
            if line.when > until {
                break;
            }
            let size = match line.kind {
                "malloc" | "calloc" | "aligned" | "realloc-to" => {
                    let size = line.size.unwrap();
                    blocks.insert(line.address, size);
                    size
                }
                "free" | "free-sized" | "realloc-of" => blocks.remove(line.address).unwrap_or(0),
                _ => 0,
            };
            call(line, size);
        }
        blocks
    }

    /// What each thread of each process did with large blocks, in an order that does not depend on
    /// numbers.
    fn calls(&self, least: u64) -> Vec<Vec<Calls<'a>>> {
        let mut all = Vec::new();
        for process in self.lines.keys() {
            let mut threads: BTreeMap<u32, Calls> = BTreeMap::new();
            self.follow(*process, f64::MAX, &mut |line, size| {
                if size >= least {
                    let own = threads.entry(line.thread).or_default();
                    own.push((line.kind, size));
                }
            });
            let mut threads: Vec<Calls> = threads.into_values().collect();
            threads.sort();
            if !threads.is_empty() {
                all.push(threads);
            }
        }
        all.sort();
        all
    }
}

#[track_caller]
fn dump(place: &Place, file: &str) -> (String, Value) {
    let dump = place.mallard(&["trace", "dump", file]).exits(SUCCESS).0;
    let (_, info, _) = outcome(&mut place.mallard(&["trace", "info", "--json", file]));
    (dump, serde_json::from_str(&info).unwrap())
}

/// The replay, as a program that can be recorded.
fn replayer(place: &Place) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/workloads");
    let program = place.path().join("replay");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-fno-builtin", "-pthread"])
        .args(["-Wall", "-Werror"])
        .arg(format!("{folder}/replay.c"))
        .args(["-ldl", "-o"])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    program
}

/// Records the program as `r.mtrace`.
#[track_caller]
fn record(place: &Place, program: &Path, arguments: &[&str]) {
    let mut command = place.mallard(&["record", "--no-check", "-o", "r.mtrace", "--"]);
    command.arg(program).args(arguments).assert().code(SUCCESS);
}

/// Compiles the largest family of `r.mtrace`.
#[track_caller]
fn compile(place: &Place) {
    let words = ["trace", "compile", "--process", "all", "r.mtrace"];
    place.mallard(&words).assert().code(SUCCESS);
}

/// Records `program`, and replays it while that is recorded, on glibc and Mallard: each process
/// has made the same calls. Returns the processes of the recording.
#[track_caller]
fn assert_same_again(place: &Place, program: &Path, arguments: &[&str], least: u64) -> usize {
    record(place, program, arguments);
    let (text, info) = dump(place, "r.mtrace");
    let first = Recorded::read(&text, &info);
    let calls = first.calls(least);
    compile(place);
    let replay = replayer(place);
    for on in [&[][..], &["-a", "mallard"]] {
        let mut command = place.mallard(&["record", "-o", "again.mtrace"]);
        command.args(on).arg("--").arg(&replay);
        let stdout = command.arg("plan=r.mtrace.plan").exits(SUCCESS).0;
        assert!(stdout.contains("family_rss_bytes"), "{stdout}");
        let (text, info) = dump(place, "again.mtrace");
        let again = Recorded::read(&text, &info);
        let found = again.calls(least);
        assert_eq!(found.len(), calls.len(), "{on:?}: other processes");
        for (found, told) in found.iter().zip(&calls) {
            for (found, told) in found.iter().zip(told) {
                let differs = found.iter().zip(told).position(|(one, other)| one != other);
                assert_eq!(differs, None, "{on:?}: {found:?} instead of {told:?}");
                assert_eq!(found.len(), told.len(), "{on:?}");
            }
            assert_eq!(found.len(), told.len(), "{on:?}: other threads");
        }
    }
    std::fs::remove_file(place.path().join("r.mtrace.plan")).unwrap();
    calls.len()
}

fn program(place: &Place) -> PathBuf {
    let source = include_str!("../recorded/forks.c");
    place.compile("forks", source, &["-O1", "-fno-builtin", "-pthread"])
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn forked_processes_do_with_inherited_blocks_what_was_recorded() {
    let place = Place::new();
    let program = program(&place);
    assert_eq!(
        assert_same_again(&place, &program, &["heap"], BLOCK_BYTES_MIN),
        4
    );
    assert_eq!(
        assert_same_again(&place, &program, &["tree"], BLOCK_BYTES_MIN),
        3
    );
}

#[test]
fn a_thread_forks_while_others_allocate() {
    let place = Place::new();
    let program = program(&place);
    assert_eq!(
        assert_same_again(&place, &program, &["thread"], BLOCK_BYTES_MIN),
        4
    );
}

#[test]
fn the_lab_replays_a_family_in_one_row_and_tells_its_memory() {
    let place = Place::new();
    record(&place, &program(&place), &["heap"]);
    let mut command = place.mallard(&["replay", "r.mtrace", "-o", "out", "--no-warm", "-r", "1"]);
    command.args(typed("-a glibc,mallard --process all --speed max,4x"));
    let stdout = command.exits(SUCCESS).0;
    let flat = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "process 1 forks and 3 forked, max",
        "by 4 processes with 4 threads",
        "Forks replay as forks",
        "Fidelity: in all 6 runs, live bytes within 0.",
        "Summed RSS at most: glibc ",
    ] {
        assert!(flat.contains(words), "{words}: {stdout}");
    }
    let results: Value = serde_json::from_str(&place.text("out/results.json")).unwrap();
    let rows = results["experiments"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        for cell in row["cells"].as_array().unwrap() {
            assert_eq!(cell["failure"], Value::Null, "{cell:#}");
            let run = &cell["runs"][0];
            let summed = run["metrics"][0][1].as_f64().unwrap();
            // 300 blocks of 5,000 bytes in each of four processes. What the replay itself has is
            // subtracted, and not from the same moment of both figures, so they cannot be compared.
            let shared = run["peak_rss_bytes"].as_f64().unwrap();
            assert!(shared > 1e6 && summed > 1e6, "{run:#}");
        }
    }
    // One process by itself, as it was asked for.
    let mut command = place.mallard(&["replay", "r.mtrace", "-o", "out", "--no-warm", "-r", "1"]);
    command.args(["-a", "glibc", "--process", "2", "--speed", "max"]);
    let stdout = command.exits(SUCCESS).0;
    assert!(!stdout.contains("Forks replay as forks"), "{stdout}");
}

#[test]
fn a_member_that_fails_ends_the_replay_with_a_reason() {
    let place = Place::new();
    record(&place, &program(&place), &["tree"]);
    compile(&place);
    // The grandchild crashes, which alone has two generations before it.
    let source = "#include <pthread.h>\n#include <signal.h>\n\
                  static int generation;\n\
                  static void child(void) { if (++generation == 3) raise(SIGSEGV); }\n\
                  __attribute__((constructor)) static void begin(void) {\n\
                  pthread_atfork(0, 0, child); generation = 1; }";
    let library = place.compile("crash.so", source, &["-shared", "-fPIC", "-pthread"]);
    let mut command = assert_cmd::Command::new(replayer(&place));
    command.arg("plan=r.mtrace.plan").current_dir(place.path());
    command.env("LD_PRELOAD", &library);
    let (stdout, stderr) = command.exits(USAGE);
    assert!(stderr.contains("ended by signal 11"), "{stderr}");
    assert_eq!(stdout, "");
}
