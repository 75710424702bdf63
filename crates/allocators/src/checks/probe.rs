//! Asks the loader which object serves `malloc`, both in a small probe program and in the program
//! to be measured.
//!
//! Preloading may fail unnoticed. If the loader cannot preload a library, it writes a line to
//! standard error and goes on with glibc's allocator. And a library that exports `malloc` may still
//! pass each request to glibc. The probe program (`probe/probe.c`) asks the loader for the object
//! behind every function, and asks glibc how many bytes it handed out meanwhile.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mallard_formats::variables;
use mallard_procfs::start;

use super::elf::Elf;
use super::program::Program;
use crate::cache::files;
use crate::{Allocator, Kind, environment};

/// An allocator that takes longer than this for a few megabytes hangs.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// The functions that must all come from the allocator; otherwise a block of one allocator would
/// reach the `free` of another.
const FAMILY: [&str; 8] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "malloc_usable_size",
];

/// jemalloc's own functions that allocate, resize, measure or free blocks.
const JEMALLOC_FAMILY: [&str; 6] = [
    "mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx",
];

/// The findings of the probe program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The object that serves `malloc` and its family.
    pub object: PathBuf,
    /// The version that the library reports, if any.
    pub library_version: Option<String>,
    pub libc_version: String,
    /// Whether per-CPU caches are active; none if the allocator has no such caches.
    pub per_cpu: Option<bool>,
}

/// Runs the probe program under `allocator`. The error is a sentence that says what serves `malloc`
/// instead, or what went wrong. `cache` is the folder of the probe program, see
/// [`crate::Settings::cache`].
pub fn probe(allocator: &Allocator, cache: Option<&Path>) -> Result<Served, String> {
    let program = files::probe(cache)?;
    let mut command = Command::new(&program);
    command.envs(environment(allocator, None));
    let (status, output, complaints) = finish(&mut command)?;
    if !status.success() {
        return Err(format!(
            "a probe program failed under it: {}",
            described(status, &complaints)
        ));
    }
    judge(allocator, &output, &complaints)
}

/// How the probe program ended under an option string.
pub(crate) struct Run {
    pub(crate) ended_well: bool,
    pub(crate) complaints: String,
}

/// Runs the probe program under `allocator` with an option string.
pub(crate) fn run_with(
    allocator: &Allocator,
    conf: &str,
    cache: Option<&Path>,
) -> Result<Run, String> {
    let mut command = Command::new(files::probe(cache)?);
    // Options that let a program write profiles are checked, and nothing is written.
    let can_write = allocator.catalog_name() == "mallard" && conf.contains("prof");
    let silent = if can_write { ",prof_prefix:" } else { "" };
    // What confirms the options is no complaint about them. Of an option that is set twice, the
    // last value counts.
    let unconfirmed = if conf.contains("confirm_conf:") {
        ",confirm_conf:false"
    } else {
        ""
    };
    command.arg("silent");
    let conf = format!("{conf}{silent}{unconfirmed}");
    command.envs(environment(allocator, Some(&conf)));
    let (status, _, complaints) = finish(&mut command)?;
    Ok(Run {
        ended_well: status.success(),
        complaints,
    })
}

type Answers<'a> = BTreeMap<&'a str, &'a str>;

/// Evaluates the probe's output.
fn judge(allocator: &Allocator, output: &str, complaints: &str) -> Result<Served, String> {
    let answers: Answers = output
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let object = PathBuf::from(answer(&answers, "malloc")?);
    check_object(allocator, &object).map_err(|problem| with_complaints(problem, complaints))?;
    check_functions(&answers, &object)?;
    check_memory(&answers, allocator.kind)?;
    match answer(&answers, "exercise")? {
        "ok" => {}
        problem => {
            return Err(format!(
                "it failed in a probe program with four threads: {problem}"
            ));
        }
    }
    Ok(Served {
        object,
        library_version: answers.get("library").map(|version| version.to_string()),
        libc_version: answer(&answers, "libc")?.to_owned(),
        per_cpu: answers.get("per_cpu").map(|active| *active == "1"),
    })
}

/// Checks that everything comes from `object`, which serves `malloc`.
fn check_functions(answers: &Answers, object: &Path) -> Result<(), String> {
    let elsewhere = |what: &str, theirs: &Path| {
        Err(format!(
            "it serves `malloc`, but `{what}` comes from {}",
            theirs.display()
        ))
    };
    for function in FAMILY {
        let theirs = Path::new(answer(answers, function)?);
        if !same_file(theirs, object) {
            return elsewhere(function, theirs);
        }
    }
    for operator in ["new", "delete"] {
        let Some(theirs) = answers.get(operator).map(Path::new) else {
            continue;
        };
        // libstdc++'s own operators call `malloc` and `free`, so they are fine.
        if !same_file(theirs, object) && !is_libstdcxx(theirs) {
            return elsewhere(&format!("operator {operator}"), theirs);
        }
    }
    Ok(())
}

/// Checks that glibc supplied the memory exactly when it should.
fn check_memory(answers: &Answers, kind: Kind) -> Result<(), String> {
    let number = |key| answers.get(key).and_then(|text| text.parse::<i64>().ok());
    let (Some(grown), Some(served)) = (number("glibc_bytes"), number("served")) else {
        return Ok(());
    };
    match (grown * 2 > served, kind == Kind::Glibc) {
        (true, false) => Err("it exports `malloc` but takes the memory from glibc".to_owned()),
        (false, true) => {
            Err("glibc's `malloc` does not hand out glibc's memory in this environment".to_owned())
        }
        _ => Ok(()),
    }
}

fn answer<'a>(answers: &Answers<'a>, key: &str) -> Result<&'a str, String> {
    let found = answers.get(key).copied();
    found.ok_or_else(|| format!("the probe program did not print `{key}`"))
}

/// Checks that `object`, which serves `malloc`, is the requested one.
fn check_object(allocator: &Allocator, object: &Path) -> Result<(), String> {
    match &allocator.file {
        Some(file) if same_file(file, object) => Ok(()),
        None if is_libc(object) => Ok(()),
        _ => Err(format!(
            "`malloc` is served by {} instead",
            object.display()
        )),
    }
}

fn is_libc(object: &Path) -> bool {
    object.file_name().is_some_and(|name| name == "libc.so.6")
}

fn is_libstdcxx(object: &Path) -> bool {
    object
        .file_name()
        .is_some_and(|name| name == "libstdc++.so.6")
}

/// Whether two paths lead to the same file.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Why a program does not get its memory from an allocator; shown, a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotBound {
    /// The program defines a function of malloc's family itself.
    #[error("the program has its own `{0}`, which no library can replace")]
    OwnFunction(String),
    #[error("{0}")]
    Other(String),
}

impl From<String> for NotBound {
    fn from(sentence: String) -> Self {
        NotBound::Other(sentence)
    }
}

impl From<NotBound> for String {
    fn from(reason: NotBound) -> Self {
        reason.to_string()
    }
}

/// Checks that the loader binds `program`'s calls of `malloc` and its family to `allocator`,
/// without running the program's own code. Returns the object that serves `malloc`.
///
/// Uses the loader's trace mode, as `ldd -r` does: the loader loads and links everything, records
/// each binding and exits.
pub fn verify_in_target(program: &Program, allocator: &Allocator) -> Result<PathBuf, NotBound> {
    let taken = program.takes(allocator);
    taken.map_err(|lack| lack.to_string())?;
    let mut command = Command::new(&program.executable);
    command
        .envs(environment(allocator, None))
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_WARN", "1")
        .env("LD_BIND_NOW", "1")
        .env("LD_DEBUG", "bindings")
        .env_remove("LD_DEBUG_OUTPUT");
    let (status, _, record) = finish(&mut command)?;
    if !status.success() {
        let how = described(status, &last_lines(&record));
        return Err(format!("the loader cannot load it: {how}").into());
    }
    let own = Elf::read(&program.executable).map_err(|problem| problem.to_string())?;
    let brings_its_own = |function: &str| own.defines(function);
    let mut serves = None;
    for binding in record.lines().filter_map(Binding::read) {
        let is_jemallocs = JEMALLOC_FAMILY.contains(&binding.symbol);
        if !FAMILY.contains(&binding.symbol) && !is_jemallocs {
            continue;
        }
        let object = PathBuf::from(binding.to);
        if same_file(&object, &program.executable) {
            if brings_its_own(binding.symbol) {
                return Err(NotBound::OwnFunction(binding.symbol.to_owned()));
            }
            // In a program at a fixed address, the function's address is an entry in the program
            // itself. The function behind it has a binding of its own.
            continue;
        }
        if is_jemallocs && binding.from == binding.to {
            continue;
        }
        check_object(allocator, &object).map_err(|_| {
            let (symbol, object) = (binding.symbol, object.display());
            if is_jemallocs {
                format!(
                    "the program also calls jemalloc's `{symbol}`, which the loader takes from \
                     {object}: only a part of its memory would come from {}",
                    allocator.name
                )
            } else {
                format!("in this program, the loader takes `{symbol}` from {object}")
            }
        })?;
        if binding.symbol == "malloc" {
            serves = Some(object);
        }
    }
    serves.ok_or_else(|| {
        let nothing = "nothing in this program calls `malloc`".to_owned();
        with_complaints(nothing, &complaints_in(&record)).into()
    })
}

/// One line of the loader's record.
struct Binding<'a> {
    from: &'a str,
    to: &'a str,
    symbol: &'a str,
}

impl<'a> Binding<'a> {
    /// Reads ``PID: binding file A [0] to B [0]: normal symbol `malloc' [VERSION]``.
    fn read(line: &'a str) -> Option<Binding<'a>> {
        let (_, rest) = line.split_once("binding file ")?;
        let (from, rest) = rest.split_once(" [")?;
        let (_, rest) = rest.split_once("] to ")?;
        let (to, rest) = rest.split_once(" [")?;
        let (_, rest) = rest.split_once("symbol `")?;
        let (symbol, _) = rest.split_once('\'')?;
        Some(Binding { from, to, symbol })
    }
}

/// Runs a command to its end and returns its status, output and error output. Kills it if it hangs.
fn finish(command: &mut Command) -> Result<(ExitStatus, String, String), String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    without_user_options(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child =
        start::newly_written(command).map_err(|error| format!("cannot run {shown}: {error}"))?;
    let output = drain(child.stdout.take());
    let complaints = drain(child.stderr.take());
    let status = wait(&mut child).map_err(|error| format!("cannot wait for {shown}: {error}"))?;
    let text = |reader: Option<std::thread::JoinHandle<String>>| {
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    };
    match status {
        Some(status) => Ok((status, text(output), text(complaints))),
        None => Err(format!(
            "{shown} did not finish within {} s under it",
            PROBE_TIMEOUT.as_secs()
        )),
    }
}

/// The user's options of the allocator are for programs of theirs: here a profile would be written,
/// or statistics printed, of the probe program. What the lab itself has set stays.
fn without_user_options(command: &mut Command) {
    let set: Vec<_> = command
        .get_envs()
        .map(|(name, _)| name.to_owned())
        .collect();
    for (name, _) in std::env::vars_os() {
        let is_option = name.to_str().is_some_and(variables::is_option);
        if is_option && name != "GLIBC_TUNABLES" && !set.contains(&name) {
            command.env_remove(name);
        }
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> Option<std::thread::JoinHandle<String>> {
    let mut pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The output before an error is still useful.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

/// Waits for the end; none if the wait took too long and the child was killed.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > PROBE_TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How a process ended, with its error output.
fn described(status: ExitStatus, complaints: &str) -> String {
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    };
    with_complaints(end, &last_lines(complaints))
}

fn with_complaints(problem: String, complaints: &str) -> String {
    match complaints.trim() {
        "" => problem,
        complaints => format!(
            "{problem} ({})",
            complaints.lines().collect::<Vec<_>>().join("; ")
        ),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(3)..].join("\n")
}

/// The loader's error messages in its record.
fn complaints_in(record: &str) -> String {
    record
        .lines()
        .filter(|line| line.contains("ERROR: ld.so"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(kind: Kind, file: Option<&str>) -> Allocator {
        Allocator {
            name: "test".to_owned(),
            kind,
            version: String::new(),
            file: file.map(PathBuf::from),
            environment: Vec::new(),
            conf_variable: None,
            options: None,
            base: None,
        }
    }

    #[test]
    fn a_program_that_is_still_being_written_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("true");
        std::fs::copy("/bin/true", &path).unwrap();
        let writer = std::fs::File::options().append(true).open(&path).unwrap();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(writer);
        });
        let (status, _, _) = finish(&mut Command::new(&path)).unwrap();
        assert!(status.success());
        writing.join().unwrap();
    }

    /// The output of a probe in which `object` serves everything and glibc's count grew by `grown`.
    fn answers(object: &str, grown: i64) -> String {
        let family: String = FAMILY
            .iter()
            .map(|name| format!("{name}={object}\n"))
            .collect();
        format!("{family}glibc_bytes={grown}\nserved=1000\nlibc=2.36\nexercise=ok\n")
    }

    #[test]
    fn a_peer_that_serves_everything_is_accepted() {
        let peer = allocator(Kind::Peer, Some("/peer.so"));
        let output = answers("/peer.so", 0) + "library=1.2\nper_cpu=1\n";
        let served = judge(&peer, &output, "").unwrap();
        assert_eq!(served.object, Path::new("/peer.so"));
        assert_eq!(served.library_version.as_deref(), Some("1.2"));
        assert_eq!(served.per_cpu, Some(true));
    }

    #[test]
    fn a_peer_that_the_loader_ignored_is_rejected_with_the_loader_s_message() {
        let peer = allocator(Kind::Peer, Some("/peer.so"));
        let reason = judge(&peer, &answers("/lib/libc.so.6", 1000), "ld.so: ignored.").unwrap_err();
        assert!(reason.contains("/lib/libc.so.6"), "{reason}");
        assert!(reason.contains("ignored"), "{reason}");
    }

    #[test]
    fn a_front_that_takes_its_memory_from_glibc_is_rejected() {
        let peer = allocator(Kind::Peer, Some("/peer.so"));
        let reason = judge(&peer, &answers("/peer.so", 1000), "").unwrap_err();
        assert!(reason.contains("from glibc"), "{reason}");
    }

    #[test]
    fn a_front_that_lacks_a_function_is_rejected_with_the_function_s_name() {
        let peer = allocator(Kind::Peer, Some("/peer.so"));
        let output = answers("/peer.so", 0).replace("memalign=/peer.so", "memalign=/libc.so.6");
        let reason = judge(&peer, &output, "").unwrap_err();
        assert!(reason.contains("memalign"), "{reason}");
    }

    #[test]
    fn operators_may_come_only_from_the_peer_or_libstdcxx() {
        let peer = allocator(Kind::Peer, Some("/peer.so"));
        for good in ["/peer.so", "/usr/lib/libstdc++.so.6"] {
            let output = answers("/peer.so", 0) + &format!("new={good}\ndelete={good}\n");
            assert!(judge(&peer, &output, "").is_ok(), "{good}");
        }
        let output = answers("/peer.so", 0) + "new=/other.so\ndelete=/peer.so\n";
        let reason = judge(&peer, &output, "").unwrap_err();
        assert!(
            reason.contains("operator new") && reason.contains("/other.so"),
            "{reason}"
        );
    }

    #[test]
    fn an_allocator_that_damages_memory_is_rejected() {
        let peer = allocator(Kind::Peer, Some("/peer.so"));
        let output = answers("/peer.so", 0).replace("exercise=ok", "exercise=realloc lost bytes");
        assert!(
            judge(&peer, &output, "")
                .unwrap_err()
                .contains("realloc lost bytes")
        );
    }

    #[test]
    fn glibc_is_rejected_if_something_else_is_preloaded() {
        let glibc = allocator(Kind::Glibc, None);
        assert!(judge(&glibc, &answers("/lib/libc.so.6", 1000), "").is_ok());
        assert!(judge(&glibc, &answers("/lib/libjemalloc.so.2", 0), "").is_err());
    }

    #[test]
    fn a_line_of_the_loader_s_record_is_parsed() {
        let line = "  28480:\tbinding file /lib/libc.so.6 [0] to /x/liba.so [0]: normal symbol \
                    `malloc' [GLIBC_2.2.5]";
        let binding = Binding::read(line).unwrap();
        assert_eq!((binding.to, binding.symbol), ("/x/liba.so", "malloc"));
        assert!(Binding::read("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)").is_none());
    }
}
