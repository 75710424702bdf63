//! Runs cases, each in a process of its own on the library, and once on glibc, and compares.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mallard_e2e::Library;
use mallard_e2e::compiler::Source;

use crate::cases::{Case, Options};
use crate::machine::Machine;

/// The rest of a run that fails as often is left out.
const FAILURES_MAX: usize = 25;

/// How the program reaches the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Preloaded,
    Static,
}

/// The programs of a sweep: in C and in C++, on the library and on glibc.
pub struct Programs {
    library: &'static Library,
    link: Link,
    ours: [PathBuf; 2],
    glibc: [PathBuf; 2],
    /// Runs the programs, as on a system that grants every request.
    granting: Option<PathBuf>,
}

impl Programs {
    pub fn new(library: &'static Library, link: Link) -> Programs {
        let sources = ["requests.c", "requests.cpp"];
        let source = |file| Source::new(file).flags(&["-Wall", "-Wextra", "-Werror", "-O1"]);
        let glibc = sources.map(|file| source(file).with_headers().compile());
        let ours = match link {
            Link::Preloaded => glibc.clone(),
            Link::Static => sources.map(|file| {
                let source = source(file).with_headers().flags(&["-static"]);
                source.link(library.archive()).compile()
            }),
        };
        Programs {
            library,
            link,
            ours,
            glibc,
            granting: None,
        }
    }

    /// The same programs, run by `programs/granting.c`.
    pub fn granted(self, granting: PathBuf) -> Programs {
        Programs {
            granting: Some(granting),
            ..self
        }
    }

    /// The program and its arguments.
    fn words(&self, programs: &[PathBuf; 2], case: &Case) -> Vec<String> {
        let program = &programs[usize::from(case.way.is_cpp)];
        let paths = self.granting.iter().chain([program]);
        let mut words: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        words.extend(case.arguments());
        words
    }

    fn on_glibc(&self, case: &Case) -> Command {
        command(&self.words(&self.glibc, case))
    }

    fn on_library(&self, case: &Case, options: Options) -> Command {
        let mut command = command(&self.words(&self.ours, case));
        command.envs(self.variables(options));
        command
    }

    fn variables(&self, options: Options) -> Vec<(&'static str, String)> {
        let mut variables = vec![("REQUESTS_ON", "mallard".to_owned())];
        if self.link == Link::Preloaded {
            variables.push(("LD_PRELOAD", self.library.shared.display().to_string()));
        }
        variables.push(("MALLOC_CONF", options.conf.to_owned()));
        if options.hooks {
            variables.push(("REQUESTS_HOOKS", "1".to_owned()));
        }
        variables
    }

    /// The command line that repeats a run.
    fn line(&self, case: &Case, options: Options) -> String {
        let variables = self.variables(options).into_iter();
        let mut words: Vec<String> = variables.map(|(n, value)| format!("{n}={value}")).collect();
        words.extend(self.words(&self.ours, case));
        words.join(" ")
    }

    fn machine(&self) -> Machine {
        match self.granting {
            Some(_) => Machine::GRANTING,
            None => Machine::here(),
        }
    }
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.env_clear().args(&words[1..]);
    command
}

/// The end of a process.
#[derive(Debug, Clone)]
enum End {
    /// A bit for each of four requests: the first, the second, the last, the one after all was
    /// freed.
    Verdict(i32),
    /// It failed a check, printed something, or was killed.
    Failed(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            End::Failed(how) => write!(f, "{how}"),
            End::Verdict(bits) => {
                let words = ["first", "second", "last", "once more"];
                let given = |bit: usize| ["null", "memory"][usize::from(bits >> bit & 1 == 1)];
                let each = (0..4).map(|bit| format!("{} {}", words[bit], given(bit)));
                write!(f, "{}", each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// One worker's place for what its processes print, which is nothing.
struct Output(File);

impl Output {
    fn new() -> Output {
        Output(tempfile::tempfile().expect("a file for output"))
    }

    fn run(&mut self, mut command: Command) -> End {
        let stream = || Stdio::from(self.0.try_clone().expect("the file"));
        command
            .stdin(Stdio::null())
            .stdout(stream())
            .stderr(stream());
        let status = match command.status() {
            Ok(status) => status,
            Err(error) => return End::Failed(format!("cannot start it: {error}")),
        };
        let printed = self.take();
        match status.code() {
            Some(code @ 40..56) if printed.is_empty() => End::Verdict(code - 40),
            _ => End::Failed(format!("{} {printed}", described(status))),
        }
    }

    fn take(&mut self) -> String {
        let mut text = String::new();
        if self.0.metadata().map_or(0, |data| data.len()) > 0 {
            let _ = self.0.rewind();
            let _ = self.0.read_to_string(&mut text);
            let _ = self.0.set_len(0);
            let _ = self.0.rewind();
        }
        text.trim_end().to_owned()
    }
}

fn described(status: ExitStatus) -> String {
    match status.signal() {
        Some(11) => "SIGSEGV".to_owned(),
        _ => status.to_string(),
    }
}

/// A verdict that differs, where both have to be the same. With glibc's own run this shows whether
/// the expectation is right.
fn differs(case: &Case, ours: i32, glibc: i32, machine: Machine) -> bool {
    let is_limited = case.place.contains("limit");
    let machine = if is_limited {
        machine.with_limit()
    } else {
        machine
    };
    let Case { size, way, .. } = *case;
    let last = if way.alignment > 2 << 20 { 10 } else { 100 };
    // As many have to fit at once; in a process that sets a limit, fewer may be the last.
    let counts = [1, 2, last, 1];
    (0..4).any(|bit| {
        let [ours, glibc] = [ours, glibc].map(|bits| bits >> bit & 1 == 1);
        match machine.verdict(size, way.alignment, counts[bit]) {
            Some(expected) => ours != expected || glibc != expected,
            None => false,
        }
    })
}

/// Counts of a sweep, and what failed in it.
#[derive(Debug, Default)]
struct Account {
    on_library: AtomicUsize,
    on_glibc: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Account {
    fn fail(&self, text: String) {
        self.failures.lock().expect("no panic").push(text);
    }

    fn is_over(&self) -> bool {
        self.failures.lock().expect("no panic").len() >= FAILURES_MAX
    }
}

/// One case with all its options: first on glibc, then on the library.
fn compare(
    programs: &Programs,
    (case, options): &(Case, Vec<Options>),
    output: &mut Output,
    machine: Machine,
    account: &Account,
) {
    let glibc = output.run(programs.on_glibc(case));
    account.on_glibc.fetch_add(1, Ordering::Relaxed);
    let End::Verdict(expected) = glibc else {
        let line = programs.words(&programs.glibc, case).join(" ");
        return account.fail(format!("{case} on glibc: {glibc}\n    {line}"));
    };
    for &options in options {
        if account.is_over() {
            return;
        }
        let end = output.run(programs.on_library(case, options));
        account.on_library.fetch_add(1, Ordering::Relaxed);
        let fails = match end {
            End::Failed(_) => true,
            End::Verdict(ours) => case.is_comparable() && differs(case, ours, expected, machine),
        };
        if fails {
            let hooks = if options.hooks { " and hooks" } else { "" };
            account.fail(format!(
                "{case} with '{}'{hooks} on the {} build: {end}; on glibc: {glibc}\n    {}",
                options.conf,
                programs.library.name,
                programs.line(case, options),
            ));
        }
    }
}

/// Runs the cases, two at once on two CPUs.
///
/// # Panics
/// If cases fail; the message has them.
pub fn sweep(programs: &Programs, cases: &[(Case, Vec<Options>)]) {
    let account = Account::default();
    let next = AtomicUsize::new(0);
    let machine = programs.machine();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut output = Output::new();
                while let Some(group) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if account.is_over() {
                        break;
                    }
                    compare(programs, group, &mut output, machine, &account);
                }
            });
        }
    });
    let failures = account.failures.into_inner().expect("no worker panicked");
    let counts = format!(
        "{} processes on the {} build ({:?}{}), {} on glibc",
        account.on_library.into_inner(),
        programs.library.name,
        programs.link,
        ["", ", granted"][usize::from(programs.granting.is_some())],
        account.on_glibc.into_inner()
    );
    println!("{counts}");
    assert!(
        failures.is_empty(),
        "{} failures of {counts}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
