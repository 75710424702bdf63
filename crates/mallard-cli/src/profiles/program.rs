//! Runs a program on Mallard with sampling on, and reads the last profile of each of its processes.
//!
//! Mallard itself writes a profile when a process ends, into a folder of ours. [`super::members`]
//! reads those that end by a signal or by `_exit`, which write none.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mallard_allocators::{environment_of_user, program};
use mallard_profile::model::Profile;
use mallard_profile::names::NamingOutcome;
use mallard_profile::process::live::Stacks;
use mallard_profile::read;
use mallard_profile::view::fork;
use mallard_profile::view::sum::Parts;
use mallard_report::model::Exit;
use mallard_report::stats::SUBJECT;
use mallard_report::units;
use mallard_watch::follow::{self, Following};
use rustix::process::{Pid, Signal, kill_process};

use super::members::{End, Member, Members, PREFIX, Snapshots, Wanted};
use super::source::{Loaded, find_names};
use crate::allocators::choice::{self, Choice};
use crate::options::follow::FollowOptions;
use crate::options::search::SearchOptions;
use crate::terminal::exit;
use crate::terminal::reminder::Reminder;

/// The pause between two looks at whether the program has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How long a program may take to end after the user's signal, or ours.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Processes that outlive the program are named if they do not end within this time.
const PATIENCE: Duration = Duration::from_millis(500);

/// A program that ran to its end, with the processes that it started.
pub struct Ran {
    /// The program's own.
    pub status: ExitStatus,
    /// The program's own process first.
    pub processes: Vec<Of>,
    parts: Parts,
    outcome: NamingOutcome,
    /// What concerns all of them, one sentence each.
    notes: Vec<String>,
}

/// A process of the program.
pub struct Of {
    pub pid: u32,
    pub parent: Option<u32>,
    pub program: String,
    pub end: End,
    /// Its place among the profiles, or why it has none.
    profile: Result<usize, String>,
    pub snapshots: Snapshots,
    /// What it had when it was forked.
    pub at_fork: Stacks,
    /// What concerns this one, one sentence each.
    notes: Vec<String>,
}

impl Of {
    /// `server (4711)`.
    pub fn shown(&self) -> String {
        format!("{} ({})", self.program, self.pid)
    }

    /// Why there is no profile of it.
    pub fn why_not(&self) -> Option<&str> {
        self.profile.as_ref().err().map(String::as_str)
    }

    /// Whether it is a shell.
    pub fn is_shell(&self) -> bool {
        const SHELLS: [&str; 9] = [
            "sh", "dash", "bash", "ash", "zsh", "ksh", "mksh", "fish", "busybox",
        ];
        SHELLS.contains(&self.program.trim_start_matches('-'))
    }
}

/// How a process ended, for a table.
pub fn end_of(end: End) -> String {
    match end {
        End::Ended(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => units::exit(Exit::Signal(signal)),
            (None, None) => status.to_string(),
        },
        End::Unknown => "not known".to_owned(),
        End::Runs => "still runs".to_owned(),
    }
}

/// The exit code that stands for a program's end, as in a shell.
pub fn code_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(number_of(status))
}

fn number_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}

/// What a run is for.
pub struct Purpose<'a> {
    /// Further options of the allocator.
    pub conf: &'a str,
    /// Whether the program's standard output goes to standard error: standard output is for the
    /// answer alone.
    pub is_quiet: bool,
    /// Whether the growth of its memory is wanted as well.
    pub snapshots: bool,
}

/// Runs the program on Mallard.
pub fn run(
    words: &[OsString],
    purpose: &Purpose<'_>,
    options: &FollowOptions,
    search: &SearchOptions,
) -> Result<Ran> {
    let folder = tempfile::Builder::new()
        .prefix("mallard-profiles-")
        .tempdir()
        .context("cannot make a folder for the profiles")?;
    let command = command(words, purpose, folder.path())?;
    // Ctrl-C is for the program; its profile is shown all the same.
    let interrupts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&interrupts);
    let _ = ctrlc::set_handler(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let wanted = Wanted {
        snapshots: purpose.snapshots,
        // Until it is known whether they are traced.
        profiles: false,
    };
    let members = Arc::new(Mutex::new(Members::new(folder.path(), wanted)));
    let told = Arc::clone(&members);
    let path = Path::new(command.get_program()).to_owned();
    let following = follow::start(command, !options.no_trace, move |event| {
        lock(&told).on(event);
    })
    .with_context(|| format!("cannot run {}", path.display()))?;
    lock(&members).wanted.profiles = !following.is_traced();
    let name = &words[0];
    let reminder = Reminder::of(&format!("mallard: profiling {}", name.to_string_lossy()));
    let status = watch(&following, &members, &interrupts, options.wait());
    drop(reminder);
    following.stop();

    let mut members = lock(&members);
    let mut notes = Vec::from_iter(note_on_tracing(&following, &members.list));
    let is_left = members.running().count() > 0;
    if is_left {
        let kept = folder.keep();
        notes.extend(members.running().map(|member| left(member, &kept)));
    }
    let list = members.close();
    drop(members);
    let mut ran = read_all(list, status, notes)?;
    ran.find_names(name, search);
    ran.check()?;
    Ok(ran)
}

/// The program on Mallard, which writes last profiles into the folder.
fn command(words: &[OsString], purpose: &Purpose<'_>, folder: &Path) -> Result<Command> {
    let [name, arguments @ ..] = words else {
        unreachable!("the command line asks for a program")
    };
    let found = program::check(&name.to_string_lossy())?;
    let allocator = choice::one(&Choice::default(), SUBJECT, "profile")?;
    found.takes(&allocator)?;
    // The program's own options are read before, so these win.
    let conf = format!(
        "prof:true,prof_final:true,prof_format:pprof,prof_pid_namespace:false,prof_prefix:{}{}",
        folder.join(PREFIX).display(),
        purpose.conf
    );
    let mut command = Command::new(&found.path);
    command
        .arg0(name)
        .args(arguments)
        .envs(environment_of_user(&allocator, Some(&conf)));
    if purpose.is_quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    Ok(command)
}

/// What may be missing because the processes were not traced.
fn note_on_tracing(following: &Following, members: &[Member]) -> Option<String> {
    let is_file_missing = members.iter().any(|member| member.file.is_none());
    if following.is_traced() || (members.len() <= 1 && !is_file_missing) {
        return None;
    }
    let why = match &following.refused {
        Some(error) => format!("tracing is not permitted here ({error})"),
        None => "they were not traced".to_owned(),
    };
    Some(format!(
        "{why}: a process that ran shortly may be missing, and what one had from its parent counts as its own"
    ))
}

fn lock(members: &Mutex<Members>) -> MutexGuard<'_, Members> {
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a process that goes on is read later.
fn left(member: &Member, folder: &Path) -> String {
    let Member {
        pid,
        inside,
        program,
        ..
    } = member;
    format!(
        "{program} ({pid}) still runs: `mallard profile {pid}` reads it; if it ends by exit, it writes {}/{PREFIX}.{inside}.0.f.pb.gz",
        folder.display()
    )
}

/// Reads the processes while they run, until all have ended, or those that outlive the program are
/// waited for no longer. Returns how the program ended.
fn watch(
    following: &Following,
    members: &Mutex<Members>,
    interrupts: &AtomicU32,
    wait: Duration,
) -> ExitStatus {
    let mut ended: Option<(Instant, u32)> = None;
    let mut is_told = false;
    let mut asks = None;
    loop {
        let turns = lock(members).turns();
        for turn in turns {
            let found = turn.read();
            lock(members).keep(found);
        }
        let is_over = following.is_over();
        let of_program = lock(members).list.first().map(|first| first.end);
        if ended.is_none() && of_program.is_some_and(|end| end != End::Runs) {
            ended = Some((Instant::now(), interrupts.load(Ordering::Relaxed)));
        }
        if is_over {
            break;
        }
        // After a signal to this command the program may end by itself. What does not is asked to,
        // so that what is known until then is shown.
        if ended.is_none() && interrupts.load(Ordering::Relaxed) > 0 {
            let next = *asks.get_or_insert_with(|| Instant::now() + END_TIMEOUT);
            if Instant::now() >= next {
                asks = Some(Instant::now() + END_TIMEOUT);
                ask_to_end(&lock(members));
            }
        }
        if let Some((at, before)) = ended {
            let is_interrupted = interrupts.load(Ordering::Relaxed) > before;
            if is_interrupted || at.elapsed() >= wait {
                let mut members = lock(members);
                let running = members.list.iter_mut();
                let running = running.filter(|it| it.end == End::Runs && !it.is_part_of_another());
                running.for_each(|member| member.read_now(member.pid, false));
                break;
            }
            if !is_told && at.elapsed() >= PATIENCE.min(wait) {
                is_told = tell_wait(&lock(members), wait);
            }
        }
        thread::sleep(END_CHECK_INTERVAL);
    }
    match lock(members).list.first().map(|first| first.end) {
        Some(End::Ended(status)) => status,
        // The lab is its parent: only another thread could have reaped it.
        _ => ExitStatus::default(),
    }
}

/// Asks the program's own process to end.
fn ask_to_end(members: &Members) {
    let pid = members
        .list
        .first()
        .and_then(|first| i32::try_from(first.pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Says what is waited for, and returns whether there is something.
fn tell_wait(members: &Members, wait: Duration) -> bool {
    const NAMED_MAX: usize = 3;
    let names: Vec<String> = members
        .running()
        .map(|member| format!("{} ({})", member.program, member.pid))
        .collect();
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !names.is_empty() {
        let named = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
        eprintln!(
            "the program has ended; waiting up to {} for {}{more}; Ctrl-C shows what is known",
            humantime::format_duration(wait),
            named.join(", ")
        );
    }
    !names.is_empty()
}

/// Reads what the processes wrote, with what was read of the others.
fn read_all(list: Vec<Member>, status: ExitStatus, notes: Vec<String>) -> Result<Ran> {
    let mut ran = Ran {
        status,
        processes: Vec::new(),
        parts: Parts::default(),
        outcome: NamingOutcome::default(),
        notes,
    };
    for (place, member) in list.into_iter().enumerate() {
        if place > 0 && member.is_part_of_another() {
            continue;
        }
        let mut notes = Vec::new();
        let profile = match (&member.file, member.reading) {
            (Some(file), _) => {
                let bytes = fs::read(file).context("cannot read the program's profile")?;
                let profile = read::profile(&bytes);
                notes.extend(profile.iter().flat_map(Profile::notes));
                profile.map_err(|error| format!("the profile that it wrote: {error}"))
            }
            (None, Some(reading)) => {
                if member.end != End::Runs && !member.is_last {
                    notes.push(
                        "the program wrote no profile at its end: this is the last one read before"
                            .to_owned(),
                    );
                }
                notes.extend(reading.notes);
                Ok(reading.profile)
            }
            (None, None) => Err(member.why_not.unwrap_or_else(|| {
                "it ended before it could be read, or does not run on Mallard".to_owned()
            })),
        };
        let profile = profile.and_then(|mut profile| {
            fork::take_off(&mut profile, &member.at_fork);
            let added = ran.parts.add(&profile).map_err(|error| error.to_string());
            added.map(|()| ran.parts.len() - 1)
        });
        ran.processes.push(Of {
            pid: member.pid,
            parent: member.parent,
            program: member.program,
            end: member.end,
            profile,
            snapshots: member.snapshots,
            at_fork: member.at_fork,
            notes,
        });
    }
    Ok(ran)
}

impl Ran {
    /// Gives names to all profiles at once.
    fn find_names(&mut self, name: &OsStr, search: &SearchOptions) {
        let shown = Path::new(name).file_name().unwrap_or(name);
        let mut sum = self.parts.all();
        // A map of a JIT compiler is that of one process.
        let mut known = self
            .processes
            .iter()
            .filter(|process| process.profile.is_ok());
        let pid = match (known.next(), known.next()) {
            (Some(only), None) => Some(only.pid),
            _ => None,
        };
        self.outcome = find_names(&mut sum, &shown.to_string_lossy(), pid, None, search);
        self.parts.take_names(&sum);
    }

    /// An error if nothing is known of any process.
    fn check(&self) -> Result<()> {
        if !self.parts.is_empty() {
            return Ok(());
        }
        let first = self.processes.first();
        let shown = first.map_or_else(|| "the program".to_owned(), Of::shown);
        let reason = first
            .and_then(Of::why_not)
            .unwrap_or("nothing was seen of it");
        Err(self.failed(format!(
            "{shown} ended with {} and left no profile: {reason}",
            self.status
        )))
    }

    /// An error, with the program's own exit code if it failed.
    pub fn failed(&self, why: String) -> anyhow::Error {
        let code = if self.status.success() {
            1
        } else {
            number_of(self.status)
        };
        exit::ProgramFailed { code, why }.into()
    }

    /// The profiles of some processes together, by their places; those without one add nothing.
    pub fn profile(&self, of: &[usize]) -> Profile {
        let known = of.iter().flat_map(|&place| &self.processes[place].profile);
        self.parts.sum(&known.copied().collect::<Vec<_>>())
    }

    /// The same with names and notes.
    pub fn loaded(&self, of: &[usize], name: String) -> Loaded {
        let profile = self.profile(of);
        Loaded {
            name,
            outcome: self.outcome(&profile),
            profile,
            notes: self.notes(of),
        }
    }

    /// What concerns the run and some processes of it, one sentence each.
    pub fn notes(&self, of: &[usize]) -> Vec<String> {
        let mut notes = self.notes.clone();
        if !self.status.success() {
            notes.push(format!("the program ended with {}", self.status));
        }
        for note in of.iter().flat_map(|&place| &self.processes[place].notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }

    /// How well the modules of a profile have got names.
    pub fn outcome(&self, profile: &Profile) -> NamingOutcome {
        let stacks = profile
            .samples
            .iter()
            .flat_map(|sample| sample.stack.iter());
        let modules = stacks.filter_map(|&index| profile.location(index).mapping);
        let modules: BTreeSet<_> = modules.collect();
        let names: Vec<&str> = (modules.iter())
            .map(|&index| profile.mapping(index).name())
            .collect();
        let lacks = self.outcome.lacks.iter();
        NamingOutcome {
            lacks: lacks
                .filter(|lack| names.contains(&lack.module.as_str()))
                .cloned()
                .collect(),
        }
    }
}
