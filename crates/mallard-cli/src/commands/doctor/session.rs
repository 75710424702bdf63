//! A run of the program on Mallard, with all of its processes, and what they reported.
//!
//! The processes are traced where the system permits it: one that ends stands still for a moment,
//! and the memory around the block in question is read then.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mallard_allocators::program::Program;
use mallard_allocators::{Allocator, environment_of_user};
use mallard_inspect::memory::heap::{self, Heap};
use mallard_inspect::memory::process::ProcessMemory;
use mallard_inspect::memory::{Memory, image};
use mallard_procfs::{about, mapping};
use mallard_watch::follow::{self, Event};
use rustix::process::{Pid, Signal, kill_process};

use super::picture::{self, ROW_BYTES};
use super::report::Report;
use crate::profiles::followed::{Followed, Followee};
use crate::profiles::frames::Place;
use crate::profiles::members::End;

/// The pause between two looks at whether the program has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How long the program may take to end after it was asked to; it is killed then.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long processes may outlive the program.
const OUTLIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A report file of more bytes is read no further.
const REPORTS_BYTES_MAX: u64 = 64 << 20;

/// How the program is run.
pub struct Setting<'a> {
    pub words: &'a [OsString],
    pub program: &'a Program,
    pub allocator: &'a Allocator,
    /// Whether the program's standard output goes to standard error.
    pub is_quiet: bool,
    pub trace: bool,
    /// The longest that the program may run.
    pub time: Option<Duration>,
    pub interrupts: &'a AtomicU32,
}

/// A run.
pub struct Ran {
    /// The options that the library had.
    pub options: String,
    pub took: Duration,
    /// The program's own process first.
    pub members: Vec<Member>,
    pub reports: Vec<Found>,
    /// Whether the program was asked to end, by the user or because its time was over.
    pub is_stopped: bool,
    pub is_interrupted: bool,
    pub is_traced: bool,
}

/// A process.
pub type Member = Followee<Known>;

/// What is known of a process.
pub struct Known {
    /// Its own number for itself.
    pub inside: u32,
    /// Whether the library was in it; not known if it was not traced.
    pub is_checked: Option<bool>,
    /// Where a thread was when a signal ended the process.
    pub crashed_at: Option<Place>,
}

/// A report of a process.
#[derive(Clone)]
pub struct Found {
    pub report: Report,
    pub program: String,
    pub picture: Vec<String>,
}

/// Runs the program with these options of the library.
pub fn run(setting: &Setting<'_>, options: &str, folder: &Path) -> Result<Ran> {
    let reports = folder.join("reports");
    let _ = fs::remove_file(&reports);
    let options = format!("{options},report_file:{}", reports.display());
    let mut command = Command::new(&setting.program.path);
    command
        .arg0(&setting.words[0])
        .args(&setting.words[1..])
        .envs(environment_of_user(setting.allocator, Some(&options)));
    if setting.is_quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let began = Instant::now();
    let interrupts = setting.interrupts.load(Ordering::Relaxed);
    let family = Arc::new(Mutex::new(Family {
        reports: reports.clone(),
        library: setting.allocator.file.clone(),
        followed: Followed::new(),
        pictures: Vec::new(),
    }));
    let told = Arc::clone(&family);
    let following = follow::start(command, setting.trace, move |event| lock(&told).on(event))
        .with_context(|| format!("cannot run {}", setting.program.path.display()))?;
    let is_stopped = watch(&following, &family, setting, began);
    following.stop();

    let mut family = lock(&family);
    let members = std::mem::take(&mut family.followed.list);
    let mut found = family.found(&members);
    if options.starts_with("hardened:true") {
        for found in &mut found {
            found.report = std::mem::take(&mut found.report).of_checked_free();
        }
    }
    let is_own = |member: &Member| !(member.shares_memory && member.end != End::Runs);
    Ok(Ran {
        options,
        took: began.elapsed(),
        reports: found,
        members: (members.into_iter().enumerate())
            .filter(|(index, member)| *index == 0 || is_own(member))
            .map(|(_, member)| member)
            .collect(),
        is_stopped,
        is_interrupted: setting.interrupts.load(Ordering::Relaxed) > interrupts,
        is_traced: following.is_traced(),
    })
}

/// Waits until all processes have ended. Returns whether the program was asked to end.
fn watch(
    following: &follow::Following,
    family: &Mutex<Family>,
    setting: &Setting<'_>,
    began: Instant,
) -> bool {
    let interrupts_before = setting.interrupts.load(Ordering::Relaxed);
    let mut asked: Option<Instant> = None;
    let mut ended: Option<Instant> = None;
    while !following.is_over() {
        let is_interrupted = setting.interrupts.load(Ordering::Relaxed) > interrupts_before;
        let is_late = setting.time.is_some_and(|time| began.elapsed() >= time);
        let runs = lock(family)
            .followed
            .list
            .first()
            .is_none_or(|it| it.end == End::Runs);
        match (runs, asked) {
            (true, None) if is_interrupted || is_late => {
                asked = Some(Instant::now());
                // The terminal gives ^C to the program as well.
                if !is_interrupted {
                    lock(family).signal(Signal::TERM, false);
                }
            }
            (true, Some(at)) if at.elapsed() >= END_TIMEOUT => {
                lock(family).signal(Signal::KILL, true);
                asked = Some(Instant::now());
            }
            (true, Some(at)) if at.elapsed() >= END_TIMEOUT / 2 => {
                lock(family).signal(Signal::TERM, false);
            }
            (false, _) => {
                let at = *ended.get_or_insert_with(Instant::now);
                if at.elapsed() >= OUTLIVE_TIMEOUT {
                    break;
                }
            }
            _ => {}
        }
        thread::sleep(END_CHECK_INTERVAL);
    }
    asked.is_some()
}

fn lock(family: &Mutex<Family>) -> MutexGuard<'_, Family> {
    family.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Family {
    /// The file that processes append to.
    reports: PathBuf,
    library: Option<PathBuf>,
    followed: Followed<Known>,
    /// The pictures of reports, by the place in the file.
    pictures: Vec<Option<Vec<String>>>,
}

impl Family {
    fn on(&mut self, event: Event) {
        match event {
            Event::Began {
                pid,
                parent,
                memory,
            } => {
                let known = Known {
                    inside: about::number_inside(pid).unwrap_or(pid),
                    is_checked: None,
                    crashed_at: None,
                };
                self.followed.began(pid, parent, memory, known);
            }
            Event::Replaced { pid } => self.followed.replaced(pid),
            Event::Ending {
                pid,
                thread,
                status,
            } => self.ending(pid, thread, status),
            Event::Ended { pid, status } => _ = self.followed.ended(pid, status),
        }
    }

    /// A process ends, and its memory is still there.
    fn ending(&mut self, pid: u32, thread: u32, status: ExitStatus) {
        let library = self.library.clone();
        let mappings = mapping::all(thread).unwrap_or_default();
        let Some((_, member)) = self.followed.running(pid) else {
            return;
        };
        member.end = End::Ended(status);
        let is_library = |path: &str| library.as_deref() == Some(Path::new(path));
        member.known.is_checked = Some(mappings.iter().any(|it| is_library(&it.path)));
        let inside = member.known.inside;
        self.draw(inside, thread, &mappings);
        if status.signal().is_some_and(is_crash) && !self.all().iter().any(|r| r.process == inside)
        {
            let at = crashed_at(pid, &mappings);
            if let Some((_, member)) = self.followed.running(pid) {
                member.known.crashed_at = at;
            }
        }
    }

    /// All reports so far.
    fn all(&self) -> Vec<Report> {
        use std::io::Read;
        let mut text = Vec::new();
        if let Ok(file) = fs::File::open(&self.reports) {
            // What cannot be read is missing.
            let _ = file.take(REPORTS_BYTES_MAX).read_to_end(&mut text);
        }
        Report::all(&String::from_utf8_lossy(&text))
    }

    /// Draws what is around the blocks of a process's reports, from the memory of one of its
    /// threads.
    fn draw(&mut self, inside: u32, thread: u32, mappings: &[mapping::Mapping]) {
        let reports = self.all();
        self.pictures.resize(reports.len(), None);
        for (picture, report) in self.pictures.iter_mut().zip(&reports) {
            if report.process != inside || picture.is_some() {
                continue;
            }
            let at = report.block.map_or(report.address, |block| block.address);
            if let Ok(memory) = ProcessMemory::open(thread, at) {
                let heap = heap_of(&memory, mappings);
                *picture = Some(picture::picture(report, &Live { memory, heap }));
            }
        }
    }

    /// The reports with their pictures.
    fn found(&self, members: &[Member]) -> Vec<Found> {
        let all = self.all().into_iter().enumerate();
        all.map(|(index, report)| {
            let member = members.iter().find(|it| it.known.inside == report.process);
            let drawn = self.pictures.get(index).cloned().flatten();
            Found {
                picture: drawn.unwrap_or_else(|| picture::picture(&report, &picture::Gone)),
                program: member.map_or_else(String::new, |member| member.program.clone()),
                report,
            }
        })
        .collect()
    }

    /// Sends a signal to the program's own process, or to all.
    fn signal(&self, signal: Signal, all: bool) {
        let running = self
            .followed
            .list
            .iter()
            .filter(|member| member.end == End::Runs);
        for member in running.take(if all { usize::MAX } else { 1 }) {
            if let Some(pid) = i32::try_from(member.pid).ok().and_then(Pid::from_raw) {
                // It may have ended meanwhile.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// A process that stands still.
struct Live {
    memory: ProcessMemory,
    heap: Option<Heap>,
}

impl picture::Memory for Live {
    fn row(&self, at: u64) -> Option<picture::Row> {
        let mut row = [0; ROW_BYTES as usize];
        self.memory.copy(at, &mut row).ok().map(|()| row)
    }

    fn place(&self, at: u64) -> Option<heap::Place> {
        self.heap.as_ref()?.find(&self.memory, at)
    }
}

/// The heap of the copy of Mallard that serves a process.
fn heap_of(memory: &ProcessMemory, mappings: &[mapping::Mapping]) -> Option<Heap> {
    let images = mappings.iter().filter(|it| it.is_file() && it.offset == 0);
    let mut roots = images.filter_map(|it| image::read(memory, it.start)?.root);
    roots.find_map(|root| Heap::read(memory, root))
}

/// Whether a signal ends a process for a mistake of its own.
pub fn is_crash(signal: i32) -> bool {
    [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGABRT,
        libc::SIGTRAP,
    ]
    .contains(&signal)
}

/// Where the thread was that did not wait in a system call, if it was a single one.
fn crashed_at(pid: u32, mappings: &[mapping::Mapping]) -> Option<Place> {
    let threads = mallard_procfs::threads(pid).into_iter();
    let mut counters = threads.filter_map(|thread| {
        // "-1", the stack pointer and the program counter, for a thread that is in no call.
        let text = fs::read(mallard_procfs::path(thread, "syscall")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let counter = text.trim().strip_prefix("-1 ")?.split(' ').nth(1)?;
        u64::from_str_radix(counter.trim_start_matches("0x"), 16).ok()
    });
    let counter = counters.next()?;
    if counters.next().is_some() {
        return None;
    }
    let code = mappings
        .iter()
        .find(|it| (it.start..it.end).contains(&counter))?;
    Some(Place {
        path: code.path.clone(),
        // A return address is one behind.
        offset: counter - code.start + code.offset + 1,
        build_id: String::new(),
    })
}

/// The folder as an option of the library can have it.
pub fn is_usable(folder: &Path) -> bool {
    !folder
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b',' | b':'))
}
