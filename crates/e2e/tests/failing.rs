//! Programs whose system calls fail (`programs/failing.c`): one of them, or all from one on. The
//! calls are those for memory or, for a process with a server (the option `http`), those of sockets
//! and threads. The program ends with its ordinary output, or as it does by itself when memory is
//! out, but never by a signal from our code. `MALLARD_EVERY_FAULT=1` has more of the calls fail.

use std::path::Path;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_testing::{lacks, skipped};

/// Calls that fail, at even distances, in CI and otherwise.
const MANY: usize = 60;
const FEW: usize = 4;
/// Where a program follows a null pointer.
const NEAR_NULL: u64 = 64 << 10;
/// The status of a supervisor that may not trace.
const NOT_ALLOWED: i32 = 90;

const SQL: &str = "create table t(a integer primary key, b text); \
    with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) \
    insert into t select x, hex(zeroblob(x % 300)) from c; \
    create index i on t(b); \
    select count(*), sum(length(b)) from t; \
    select b, count(*) from t group by b order by 2 desc limit 3;";
const PERL: &str = "my %h; for my $i (1..40000) { $h{$i} = 'x' x ($i % 200); } \
    my $s = ''; for (1..20) { $s .= 'y' x 500000; } print scalar(keys %h), ' ', length($s), \"\\n\"";
const JQ: &str = "[range(20000) | {key: tostring, value: ([range(. % 20)] | tojson)}] | from_entries \
    | [length, (map(length) | add)] | tojson";

const LUA: &str = "local t = {} for i = 1, 60000 do t[i] = ('x'):rep(i % 300) .. i end \
    local n = 0 for i = 1, #t, 2 do n = n + #t[i]; t[i] = nil end \
    local s = {} for i = 1, 200 do s[i] = ('y'):rep(20000) end print(n, #table.concat(s))";
/// Starts a server in the folder, has it work, and ends it. A client that fails ends the script.
const REDIS: &str = "cd $0; rm -f socket; \
    redis-server --port 0 --unixsocket socket --save '' --appendonly no >log 2>&1 & \
    n=0; until [ -S socket ] || [ $n -ge 60 ]; do sleep 0.05 || exit 2; n=$((n + 1)); done; \
    ask() { timeout 20 redis-cli -s socket \"$@\" || exit 3; }; \
    ask eval 'for i = 1, 20000 do redis.call(\"set\", i, string.rep(\"x\", i % 200)) end \
    for i = 1, 20000, 2 do redis.call(\"del\", i) end return redis.call(\"dbsize\")' 0; \
    ask lpush list a b c; ask flushall async; ask shutdown nosave; wait";

const EPERM: i32 = 1;
const EINTR: i32 = 4;
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
const ENOSYS: i32 = 38;

/// What a sweep has fail.
struct Sweep<'a> {
    name: &'a str,
    sandbox: Sandbox<'static>,
    /// `memory` or `sockets`.
    calls: &'a str,
    /// Errors of calls that fail alone.
    errors: &'a [i32],
    /// Calls that fail in CI, at even distances.
    many: usize,
    options: String,
}

/// Which calls fail, and how: the first, the last, the error.
type Failure = (usize, usize, i32);

struct Run {
    /// Empty if the supervisor may not trace.
    report: String,
    status: Option<i32>,
    output: String,
    errors: String,
}

fn run(sweep: &Sweep, failing: &Path, (first, last, error): Failure, words: &[&str]) -> Run {
    let report = sweep.sandbox.path("report");
    let mut command = sweep.sandbox.command(failing);
    command.arg(&report).arg(sweep.calls);
    command.args([first.to_string(), last.to_string(), error.to_string()]);
    command.args(words);
    if !sweep.options.is_empty() {
        command.env("MALLOC_CONF", &sweep.options);
    }
    let outcome = sweep.sandbox.run_to_any_end(&mut command).expect("it ends");
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let status = outcome.status.code();
    Run {
        report: if status == Some(NOT_ALLOWED) {
            String::new()
        } else {
            text
        },
        status,
        output: outcome.stdout_text(),
        errors: outcome.stderr_text(),
    }
}

/// What is wrong with the end of a program.
fn wrong(run: &Run, expected: &str) -> Option<String> {
    // What the server says of itself is no misuse.
    let is_told = |line: &str| line.contains("mallard: ") && !line.contains("mallard: http:");
    if run.errors.lines().any(is_told) {
        return Some(run.errors.clone());
    }
    for signal in run.report.lines().filter(|line| line.starts_with("signal")) {
        let mut words = signal.split(' ').skip(3);
        let address = words.next().and_then(|word| word.parse::<u64>().ok());
        // The loader and the program may not survive, as on any allocator.
        let is_of_loader = signal.contains("/ld-linux");
        let is_theirs = !signal.contains("mallard") && address < Some(NEAR_NULL);
        if !is_of_loader && !is_theirs {
            return Some(signal.to_owned());
        }
    }
    let is_other = run.status == Some(0) && run.output != expected;
    is_other.then(|| format!("other output: {}", run.output))
}

/// How many calls there were; `None` if the supervisor may not trace.
fn calls(run: &Run) -> Option<usize> {
    let last_line = run.report.lines().last().unwrap_or_default();
    Some(last_line.strip_suffix(" calls")?.parse().expect("a number"))
}

/// Whether the sweep can run here, with these programs.
fn can_run(programs: &[&str]) -> bool {
    if target().lacks_host("the supervisor is for this system's programs") {
        return false;
    }
    if !cfg!(target_arch = "x86_64") {
        skipped("the supervisor is for x86-64");
        return false;
    }
    !lacks(programs)
}

fn of_memory(name: &str) -> Sweep<'_> {
    Sweep {
        name,
        sandbox: Sandbox::temporary(Allocator::Preload(Library::release())),
        calls: "memory",
        errors: &[ENOMEM, EPERM],
        many: MANY,
        options: String::new(),
    }
}

fn sweep(sweep: &Sweep, words: &[&str]) {
    let failing = Source::new("failing.c").flags(&["-O1"]).compile();
    let never = (usize::MAX >> 1, usize::MAX >> 1, 0);
    let usual = run(sweep, &failing, never, words);
    let Some(count) = calls(&usual) else {
        return skipped("the system does not allow tracing");
    };
    assert_eq!(usual.status, Some(0), "{}", usual.errors);
    assert!(!usual.errors.contains("0 answers"), "nothing is served");
    let is_whole = std::env::var("MALLARD_EVERY_FAULT").is_ok_and(|value| value == "1");
    let sampled = if is_whole { sweep.many } else { FEW };
    let step = (count / sampled).max(1);
    let (mut runs, mut as_ever, mut failures) = (0, 0, Vec::new());
    for first in (0..count).step_by(step) {
        let alone = sweep.errors.iter().map(|&error| (first, first, error));
        let on = (first, usize::MAX >> 1, ENOMEM);
        for failure in alone.chain([on]) {
            let run = run(sweep, &failing, failure, words);
            runs += 1;
            as_ever += usize::from(run.status == Some(0));
            if let Some(how) = wrong(&run, &usual.output) {
                failures.push(format!("{failure:?}: {how}"));
            }
            // A server that asks again and again keeps a processor busy.
            if sweep.calls == "sockets" && calls(&run) > Some(10 * count + 2000) {
                failures.push(format!("{failure:?}: {:?} calls", calls(&run)));
            }
        }
    }
    let name = sweep.name;
    println!("{name}: {count} calls, {runs} runs, {as_ever} as ever");
    assert!(failures.is_empty(), "{name}:\n{}", failures.join("\n"));
    assert!(as_ever > 0, "no run of {name} came through");
}

#[test]
fn sqlite_ends_well() {
    if can_run(&["sqlite3"]) {
        sweep(&of_memory("sqlite3"), &["sqlite3", ":memory:", SQL]);
    }
}

#[test]
fn perl_ends_well() {
    if can_run(&["perl"]) {
        sweep(&of_memory("perl"), &["perl", "-e", PERL]);
    }
}

#[test]
fn jq_ends_well() {
    if can_run(&["jq"]) {
        sweep(&of_memory("jq"), &["jq", "-n", JQ]);
    }
}

#[test]
fn lua_ends_well() {
    if can_run(&["lua"]) {
        sweep(&of_memory("lua"), &["lua", "-e", LUA]);
    }
}

#[test]
fn redis_ends_well() {
    if !can_run(&["redis-server", "redis-cli"]) {
        return;
    }
    let redis = Sweep {
        many: MANY / 3,
        ..of_memory("redis")
    };
    let folder = redis.sandbox.path("").display().to_string();
    sweep(&redis, &["sh", "-c", REDIS, &folder]);
}

#[test]
fn a_process_that_serves_ends_well() {
    if !can_run(&[]) {
        return;
    }
    let program = Source::new("served.c").flags(&["-O1"]).compile();
    for (calls, errors) in [
        ("memory", &[ENOMEM, EPERM]),
        ("sockets", &[EPERM, EMFILE]),
        ("sockets", &[EINTR, ENOSYS]),
    ] {
        let mut served = Sweep {
            calls,
            errors,
            many: MANY / 10,
            ..of_memory("served")
        };
        let folder = served.sandbox.path("").display().to_string();
        let folder = folder.trim_end_matches('/');
        // The supervisor has a server too.
        served.options = format!("http:unix:{folder}/%p");
        sweep(&served, &[program.to_str().expect("text"), folder]);
    }
}
