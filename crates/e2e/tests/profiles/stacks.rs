//! How many stacks are whole: they reach the start of the program or of a thread.
//!
//! A stack's outermost frame tells. It must lie right behind the entry point of a program or of the
//! loader, or where the C library begins a thread: that place is learnt from a program with a
//! thread, as no table of names has it. In a static program the names are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::Trial;
use mallard_e2e::compiler::Source;
use mallard_e2e::service::Service;
use mallard_e2e::{Allocator, Library, Sandbox, installed};
use mallard_profile::model::{Frame, Mapping, Profile};
use mallard_profile::names::{self, Options};
use mallard_profile::read;
use mallard_profile::view::View;
use object::{Object, ObjectSegment};

/// The least share in percent for native programs, and for those whose code is made at run time.
const NATIVE_PERCENT_MIN: f64 = 99.5;
const RUN_TIME_CODE_PERCENT_MIN: f64 = 90.0;
/// Bytes from the entry point of a program to the address that its first call returns to.
const START_BYTES: u64 = 64;

pub fn trials() -> Vec<Trial> {
    let mut all = compiled_trials();
    all.extend(installed_trials());
    all
}

fn case(
    name: &'static str,
    needs: &'static [&'static str],
    least_percent: f64,
    run: fn(&Sandbox) -> Result<(), String>,
) -> Trial {
    installed::trial(name, needs, move || expect_whole(name, least_percent, run))
}

/// Programs that are compiled here.
fn compiled_trials() -> Vec<Trial> {
    vec![
        case(
            "stacks_are_whole_in_c",
            &["cc"],
            NATIVE_PERCENT_MIN,
            |sandbox| run_it(sandbox, &compiled("whole.c", &["-O2", "-pthread"])?, &[]),
        ),
        case(
            "stacks_are_whole_in_cpp",
            &["c++"],
            NATIVE_PERCENT_MIN,
            |sandbox| run_it(sandbox, &compiled("whole.cpp", &["-O2", "-pthread"])?, &[]),
        ),
        case(
            "stacks_are_whole_in_a_program_with_gaps",
            &["c++"],
            NATIVE_PERCENT_MIN,
            |sandbox| {
                let flags = ["-O2", "-pthread", "-no-pie", "-Wl,-Ttext=0x900000"];
                run_it(sandbox, &compiled("whole.cpp", &flags)?, &[])
            },
        ),
        case(
            "stacks_are_whole_in_a_static_program",
            &["c++"],
            NATIVE_PERCENT_MIN,
            |sandbox| {
                let program = Source::new("whole.cpp")
                    // Without the index of the tables no unwinder finds them.
                    .flags(&["-O2", "-pthread", "-static", "-Wl,--eh-frame-hdr"])
                    .link(Library::release().archive())
                    .try_compile()?;
                run_it(sandbox, &program, &[])
            },
        ),
        case(
            "stacks_are_whole_in_rust",
            &["rustc"],
            NATIVE_PERCENT_MIN,
            rust,
        ),
    ]
}

/// Programs of the system.
fn installed_trials() -> Vec<Trial> {
    vec![
        case(
            "stacks_are_whole_in_python3",
            &["python3"],
            NATIVE_PERCENT_MIN,
            |sandbox| {
                let script = sandbox.write("work.py", &program("work.py"));
                let mut command = sandbox.command("python3");
                command.env("PYTHONMALLOC", "malloc").arg("-B").arg(script);
                run(sandbox, &mut command)
            },
        ),
        case(
            "stacks_are_whole_in_sqlite3",
            &["sqlite3"],
            NATIVE_PERCENT_MIN,
            |sandbox| {
                const SQL: &str = "create table t(a, b); with recursive c(x) as (select 1 union \
                all select x + 1 from c where x < 20000) insert into t select x, \
                hex(randomblob(20)) from c; create index i on t(b); \
                select count(distinct b) from t;";
                run_it(sandbox, Path::new("sqlite3"), &[":memory:", SQL])
            },
        ),
        case(
            "stacks_are_whole_in_redis",
            &["redis-server", "redis-cli"],
            NATIVE_PERCENT_MIN,
            redis,
        ),
        case(
            "stacks_are_whole_in_node",
            &["node"],
            RUN_TIME_CODE_PERCENT_MIN,
            |sandbox| {
                let script = sandbox.write("work.js", &program("work.js"));
                run(sandbox, sandbox.command("node").arg(script))
            },
        ),
        case(
            "stacks_are_whole_in_java",
            &["javac", "java"],
            RUN_TIME_CODE_PERCENT_MIN,
            java,
        ),
    ]
}

fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn compiled(source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    Source::new(source).flags(flags).try_compile()
}

fn run_it(sandbox: &Sandbox, program: &Path, arguments: &[&str]) -> Result<(), String> {
    run(sandbox, sandbox.command(program).args(arguments))
}

fn run(sandbox: &Sandbox, command: &mut Command) -> Result<(), String> {
    sampled(sandbox, command);
    sandbox.run(command).map(drop)
}

/// Has the command write profiles into the folder `profiles`, of the release build.
fn sampled(sandbox: &Sandbox, command: &mut Command) {
    let folder = sandbox.path("profiles");
    fs::create_dir_all(&folder).expect("the sandbox can be written to");
    // Other allocators in the process, as redis has one, do not read this variable.
    command.env(
        "MALLARD_CONF",
        format!(
            "prof:true,prof_final:true,prof_accum:true,lg_prof_sample:10,prof_prefix:{}/a",
            folder.display()
        ),
    );
}

fn rust(sandbox: &Sandbox) -> Result<(), String> {
    let source = sandbox.write("whole.rs", &program("whole.rs"));
    let mut compiler = sandbox.plain_command("rustc");
    compiler.args(["-O", "-o", "whole"]).arg(source);
    // What rustup needs to find the compiler.
    for name in ["HOME", "RUSTUP_HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN"] {
        if let Some(value) = std::env::var_os(name) {
            compiler.env(name, value);
        }
    }
    sandbox.run(&mut compiler)?;
    run_it(sandbox, &sandbox.path("whole"), &[])
}

fn java(sandbox: &Sandbox) -> Result<(), String> {
    let source = sandbox.write("Work.java", &program("Work.java"));
    let mut compiler = sandbox.plain_command("javac");
    sandbox.run(compiler.args(["-J-Xmx512m", "-d", "."]).arg(source))?;
    let mut command = sandbox.command("java");
    // Methods are compiled where they are called: in the background of a busy machine it is chance
    // how much of the run is in code of which kind.
    command.args("-Xmx512m -XX:-UsePerfData -Xbatch -cp . Work".split(' '));
    run(sandbox, &mut command)
}

fn redis(sandbox: &Sandbox) -> Result<(), String> {
    const FILL: &str = "for i = 1, 3000 do redis.call('SET', 's' .. i, string.rep('v', i % 60)) \
        redis.call('HSET', 'h' .. i % 300, 'f' .. i, i) redis.call('RPUSH', 'l', 'e' .. i) end \
        return redis.call('DBSIZE')";
    let mut command = sandbox.command("redis-server");
    command.args(["--port", "0", "--unixsocket", "redis.sock", "--save", ""]);
    sampled(sandbox, &mut command);
    let mut server = Service::start(sandbox, "redis", &mut command)?;
    server.await_socket(&sandbox.path("redis.sock"))?;
    for words in [&["EVAL", FILL, "0"][..], &["SHUTDOWN", "NOSAVE"]] {
        let mut client = sandbox.plain_command("redis-cli");
        sandbox.run(client.args(["-s", "redis.sock"]).args(words))?;
    }
    server.await_end()
}

/// Runs a program and expects at least this share of its stacks to be whole.
fn expect_whole(
    name: &str,
    least: f64,
    run: fn(&Sandbox) -> Result<(), String>,
) -> Result<(), String> {
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    run(&sandbox)?;
    let mut sum = Sum::default();
    for mut profile in profiles(&sandbox)? {
        if name.contains("static") {
            names::name(&mut profile, &Options::default());
        }
        sum.add(&profile, thread_starts()?)?;
    }
    let share = sum.share();
    eprintln!(
        "{name}: {share:.2} % of {} stacks of {:.0} blocks",
        sum.stacks, sum.blocks
    );
    if sum.blocks > 100.0 && share >= least {
        return Ok(());
    }
    let mut ends: Vec<_> = sum.ends.into_iter().collect();
    ends.sort_by(|a, b| b.1.total_cmp(&a.1));
    ends.truncate(10);
    Err(format!(
        "{share:.2} % of {:.0} blocks, {least} % are wanted; the others' stacks end at {ends:#?}",
        sum.blocks
    ))
}

fn profiles(sandbox: &Sandbox) -> Result<Vec<Profile>, String> {
    let folder = sandbox.path("profiles");
    let entries = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let bytes = fs::read(entry.path()).map_err(|error| error.to_string())?;
        found.push(read::profile(&bytes).map_err(|error| error.to_string())?);
    }
    if found.is_empty() {
        Err("no profile was written".into())
    } else {
        Ok(found)
    }
}

/// Blocks by the kind of their stacks.
#[derive(Default)]
struct Sum {
    stacks: usize,
    blocks: f64,
    whole: f64,
    /// Where programs are entered, by their paths.
    entries: BTreeMap<String, Option<u64>>,
    /// Of stacks that are not whole: where they end.
    ends: BTreeMap<String, f64>,
}

impl Sum {
    fn share(&self) -> f64 {
        100.0 * self.whole / self.blocks.max(1.0)
    }

    fn add(&mut self, profile: &Profile, thread_starts: &[(String, u64)]) -> Result<(), String> {
        let figures = View::Allocs
            .figures(profile)
            .map_err(|error| error.to_string())?;
        let blocks_at = figures.blocks.ok_or("no blocks")?;
        for sample in &profile.samples {
            let blocks = sample.values[blocks_at] as f64;
            self.stacks += 1;
            self.blocks += blocks;
            let Some(last) = sample.stack.last() else {
                *self.ends.entry("no frame".into()).or_default() += blocks;
                continue;
            };
            let place = place(profile, last.0);
            let is_named = is_in(profile, last.0, &["__clone3", "clone3", "__clone"]);
            if is_named || place.is_start(&mut self.entries, thread_starts) {
                self.whole += blocks;
            } else {
                *self.ends.entry(place.text()).or_default() += blocks;
            }
        }
        Ok(())
    }
}

/// Where the frame of a location is.
struct Place<'a> {
    mapping: Option<&'a Mapping>,
    /// The address in the mapping's file, or else in memory.
    offset: u64,
}

fn place(profile: &Profile, location: u32) -> Place<'_> {
    let location = &profile.locations[location as usize];
    let mapping = location
        .mapping
        .map(|index| &profile.mappings[index.0 as usize]);
    let offset = mapping.map_or(location.address, |mapping| {
        location.address - mapping.start + mapping.file_offset
    });
    Place { mapping, offset }
}

impl Place<'_> {
    fn path(&self) -> String {
        self.mapping
            .map_or_else(String::new, |mapping| mapping.path.to_string())
    }

    fn text(&self) -> String {
        format!("{} {:#x}", self.path(), self.offset)
    }

    fn is_start(
        &self,
        entries: &mut BTreeMap<String, Option<u64>>,
        thread_starts: &[(String, u64)],
    ) -> bool {
        let path = self.path();
        let entry = *entries
            .entry(path.clone())
            .or_insert_with(|| entry_of(Path::new(&path)));
        let is_entry = entry.is_some_and(|at| (at..at + START_BYTES).contains(&self.offset));
        is_entry || thread_starts.contains(&(path, self.offset))
    }
}

/// The place of a program's entry point in its file.
fn entry_of(path: &Path) -> Option<u64> {
    let bytes = fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let entry = file.entry();
    file.segments().find_map(|segment| {
        let behind = entry.checked_sub(segment.address())?;
        (behind < segment.size()).then(|| segment.file_range().0 + behind)
    })
}

/// Where the C library begins a thread, by its path and the place in its file.
fn thread_starts() -> Result<&'static [(String, u64)], String> {
    static STARTS: OnceLock<Result<Vec<(String, u64)>, String>> = OnceLock::new();
    let starts = STARTS.get_or_init(|| {
        let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
        let program = compiled("whole.c", &["-O2", "-pthread"])?;
        run_it(&sandbox, &program, &[])?;
        let mut starts = Vec::new();
        for mut profile in profiles(&sandbox)? {
            names::name(&mut profile, &Options::default());
            for sample in &profile.samples {
                // The thread's function, the C library's that calls it, and the thread's start.
                let [.., function, _, start] = &*sample.stack else {
                    continue;
                };
                if is_in(&profile, function.0, &["run"]) {
                    let place = place(&profile, start.0);
                    starts.push((place.path(), place.offset));
                }
            }
        }
        starts.sort();
        starts.dedup();
        match starts.len() {
            1 => Ok(starts),
            _ => Err(format!("threads begin at {starts:?}")),
        }
    });
    starts.as_deref().map_err(Clone::clone)
}

/// Whether a location is in one of these functions.
fn is_in(profile: &Profile, location: u32, functions: &[&str]) -> bool {
    let frames = &profile.locations[location as usize].frames;
    let is_one = |frame: &Frame| functions.contains(&&*frame.function);
    frames.iter().any(is_one)
}
