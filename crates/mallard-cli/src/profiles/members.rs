//! The processes of a program that runs, and what was read of each.
//!
//! Mallard writes a profile when a process ends in good order. A process that is traced and ends
//! otherwise is read at its end, one that is not traced from time to time before it.

use std::collections::HashMap;
use std::fs;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mallard_formats::profile::FINAL_PPROF_SUFFIX;
use mallard_procfs::about;
use mallard_profile::process::live::{Process, Stacks};
use mallard_profile::process::{Error, Reading};
use mallard_watch::clock::cpu_time;
use mallard_watch::follow::{Event, Memory};

/// How the names of the profiles in the folder begin.
pub const PREFIX: &str = "heap";

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Ended(ExitStatus),
    /// Its end was not seen.
    Unknown,
    /// It has not ended.
    Runs,
}

/// The live bytes of call stacks, by the time since the first reading.
pub type Snapshots = Vec<(Duration, Stacks)>;

/// What is to be read while the processes run.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Snapshots of all of them.
    pub snapshots: bool,
    /// Their profiles, because they are not traced.
    pub profiles: bool,
}

pub struct Members {
    folder: PathBuf,
    pub wanted: Wanted,
    pub list: Vec<Member>,
    /// Those that run, by their numbers.
    running: HashMap<u32, usize>,
    /// Whether they were taken.
    is_closed: bool,
}

/// A process.
pub struct Member {
    pub pid: u32,
    /// In its own container.
    pub inside: u32,
    pub parent: Option<u32>,
    pub program: String,
    /// So many programs it has run before this one.
    image: u32,
    pub end: End,
    /// Whether it has its parent's memory.
    shares_memory: bool,
    /// What it had when it was forked.
    pub at_fork: Stacks,
    /// The profile that it wrote at its end.
    pub file: Option<PathBuf>,
    /// The last profile that was read.
    pub reading: Option<Reading>,
    /// Whether that is of its end.
    pub is_last: bool,
    /// Why it cannot be read.
    pub why_not: Option<String>,
    pub snapshots: Snapshots,
    process: Option<Arc<Process>>,
    of_snapshots: Pace,
    of_profiles: Pace,
    began: Option<Instant>,
}

/// When a process is read again.
struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    fn new(every: Duration) -> Pace {
        Pace {
            next: Instant::now(),
            every,
        }
    }

    /// The target's own work comes first. On a busy machine, a reading takes more than CPU time.
    fn read(&mut self, cost: Duration, factor: u32) {
        self.next = Instant::now() + self.every.max(cost * factor);
    }
}

const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_millis(10);
const SNAPSHOT_FACTOR: u32 = 10;
pub const SNAPSHOTS_MAX: usize = 32;
const PROFILE_INTERVAL: Duration = Duration::from_millis(500);
const PROFILE_FACTOR: u32 = 20;
/// The pause before a process that cannot be read is tried again, at most.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// A process whose turn it is to be read.
pub struct Turn {
    index: usize,
    pid: u32,
    image: u32,
    process: Option<Arc<Process>>,
    snapshot: bool,
    profile: bool,
}

/// What was read of it.
pub struct Found {
    turn: Turn,
    process: Result<Arc<Process>, Error>,
    stacks: Option<Result<Stacks, Error>>,
    reading: Option<Result<Reading, Error>>,
    cost: Duration,
}

impl Members {
    pub fn new(folder: &Path, wanted: Wanted) -> Members {
        Members {
            folder: folder.to_owned(),
            wanted,
            list: Vec::new(),
            running: HashMap::new(),
            is_closed: false,
        }
    }

    /// Takes the processes. What happens to them from now on is not followed.
    pub fn close(&mut self) -> Vec<Member> {
        self.is_closed = true;
        self.running.clear();
        mem::take(&mut self.list)
    }

    /// Those that run.
    pub fn running(&self) -> impl Iterator<Item = &Member> {
        let running = self.list.iter();
        running.filter(|member| member.end == End::Runs && !member.shares_memory)
    }

    /// Follows what happens to a process, which may stand still meanwhile.
    pub fn on(&mut self, event: Event) {
        if self.is_closed {
            return;
        }
        match event {
            Event::Began {
                pid,
                parent,
                memory,
            } => self.began(pid, parent, memory),
            Event::Replaced { pid } => {
                if let Some(member) = self.running.get(&pid).map(|&index| &mut self.list[index]) {
                    let (parent, image) = (member.parent, member.image + 1);
                    *member = Member::new(pid, parent, program_of(pid).unwrap_or_default());
                    member.image = image;
                }
            }
            Event::Ending {
                pid,
                thread,
                status,
            } => {
                if let Some(&index) = self.running.get(&pid) {
                    self.take_file(index);
                    let member = &mut self.list[index];
                    if member.file.is_none() && !member.shares_memory {
                        member.read_now(thread, true);
                    }
                    member.end = End::Ended(status);
                }
            }
            Event::Ended { pid, status } => {
                if let Some(index) = self.running.remove(&pid) {
                    self.take_file(index);
                    let member = &mut self.list[index];
                    member.end = match (status, member.end) {
                        (Some(status), _) => End::Ended(status),
                        (None, end @ End::Ended(_)) => end,
                        (None, _) => End::Unknown,
                    };
                    member.process = None;
                }
            }
        }
    }

    fn began(&mut self, pid: u32, parent: Option<u32>, memory: Memory) {
        let of_parent = parent.and_then(|parent| self.running.get(&parent));
        let of_parent = of_parent.map(|&index| &self.list[index]);
        let inherited = of_parent.map(|parent| parent.program.clone());
        let known = of_parent.and_then(|parent| parent.process.clone());
        let program = match memory {
            Memory::Copied | Memory::Shared => inherited.or_else(|| program_of(pid)),
            Memory::Fresh | Memory::Unknown => program_of(pid).or(inherited),
        };
        let mut member = Member::new(pid, parent, program.unwrap_or_default());
        member.shares_memory = memory == Memory::Shared;
        let open = || known.map_or_else(|| Process::open(pid), |parent| parent.of_fork(pid));
        if memory == Memory::Copied
            && let Ok(process) = open()
        {
            member.at_fork = process.stacks().unwrap_or_default();
            member.process = Some(Arc::new(process));
        }
        self.running.insert(pid, self.list.len());
        self.list.push(member);
    }

    /// Takes the profile that a process has written at its end, before another process gets its
    /// number.
    fn take_file(&mut self, index: usize) {
        let member = &mut self.list[index];
        if member.file.is_some() {
            return;
        }
        let own = format!("{PREFIX}.{}.", member.inside);
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let written = entries.map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            name.starts_with(own.as_bytes()) && name.ends_with(FINAL_PPROF_SUFFIX.as_bytes())
        });
        if let Some(written) = written {
            let kept = self.folder.join(format!("ended.{index}"));
            member.file = fs::rename(&written, &kept).is_ok().then_some(kept);
        }
    }

    /// Those whose turn it is.
    pub fn turns(&self) -> Vec<Turn> {
        let now = Instant::now();
        let Wanted {
            snapshots,
            profiles,
        } = self.wanted;
        let members = self.list.iter().enumerate();
        let turns = members.filter(|(_, member)| member.end == End::Runs && !member.shares_memory);
        let turns = turns.map(|(index, member)| Turn {
            index,
            pid: member.pid,
            image: member.image,
            process: member.process.clone(),
            snapshot: snapshots && member.of_snapshots.next <= now,
            profile: profiles && member.of_profiles.next <= now,
        });
        turns.filter(|turn| turn.snapshot || turn.profile).collect()
    }

    /// Keeps what was read.
    pub fn keep(&mut self, found: Found) {
        let member = &mut self.list[found.turn.index];
        let is_same = self.running.get(&member.pid) == Some(&found.turn.index)
            && member.image == found.turn.image;
        // It may have ended, or run another program, while it was read.
        if is_same && member.end == End::Runs {
            member.keep(found);
        }
    }
}

impl Turn {
    /// Reads the process.
    pub fn read(self) -> Found {
        let begun = cpu_time();
        let known = self.process.clone();
        let process = known.map_or_else(|| Process::open(self.pid).map(Arc::new), Ok);
        let opened = process.as_ref().ok();
        Found {
            stacks: opened.filter(|_| self.snapshot).map(|it| it.stacks()),
            reading: opened.filter(|_| self.profile).map(|it| it.read()),
            turn: self,
            process,
            cost: cpu_time().saturating_sub(begun),
        }
    }
}

impl Member {
    fn new(pid: u32, parent: Option<u32>, program: String) -> Member {
        Member {
            pid,
            inside: about::number_inside(pid).unwrap_or(pid),
            parent,
            program,
            image: 0,
            end: End::Runs,
            shares_memory: false,
            at_fork: Stacks::new(),
            file: None,
            reading: None,
            is_last: false,
            why_not: None,
            snapshots: Vec::new(),
            process: None,
            of_snapshots: Pace::new(SNAPSHOT_INTERVAL_MIN),
            of_profiles: Pace::new(SNAPSHOT_INTERVAL_MIN),
            began: None,
        }
    }

    /// Whether it never had memory of its own.
    pub fn is_part_of_another(&self) -> bool {
        self.shares_memory
    }

    /// Reads its profile now by one of its threads. It is that of its end or not.
    pub fn read_now(&mut self, thread: u32, is_last: bool) {
        let process = match self.process.as_ref() {
            Some(known) if thread == self.pid => Ok(Arc::clone(known)),
            // A thread has the same memory.
            Some(known) => known.of_fork(thread).map(Arc::new),
            None => Process::open(thread).map(Arc::new),
        };
        match process.and_then(|process| process.read()) {
            Ok(reading) => {
                self.reading = Some(reading);
                self.is_last = is_last;
            }
            Err(error) => self.why_not = Some(error.to_string()),
        }
    }

    fn keep(&mut self, found: Found) {
        let Found {
            turn,
            process,
            stacks,
            reading,
            cost,
        } = found;
        match process {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                self.why_not = Some(error.to_string());
                let pause = |pace: &mut Pace| {
                    pace.every = (2 * pace.every).min(RETRY_INTERVAL_MAX);
                    pace.read(cost, PROFILE_FACTOR);
                };
                pause(&mut self.of_snapshots);
                pause(&mut self.of_profiles);
                return;
            }
        }
        match stacks {
            Some(Ok(stacks)) => self.add(stacks),
            Some(Err(_)) => self.process = None,
            None => {}
        }
        if turn.snapshot {
            self.of_snapshots.read(cost, SNAPSHOT_FACTOR);
        }
        match reading {
            Some(Ok(reading)) => self.reading = Some(reading),
            // It has ended, or is another program now.
            Some(Err(_)) => self.process = None,
            None => {}
        }
        if turn.profile {
            self.of_profiles.every = PROFILE_INTERVAL;
            self.of_profiles.read(cost, PROFILE_FACTOR);
        }
    }

    /// Adds a snapshot. They are at equal distances, which double when there are many.
    fn add(&mut self, stacks: Stacks) {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if self.snapshots.is_empty() {
            self.of_snapshots.every = SNAPSHOT_INTERVAL_MIN;
        }
        self.snapshots.push((now - began, stacks));
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            self.of_snapshots.every *= 2;
            let mut place = 0;
            self.snapshots.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
    }
}

/// The name of the program that a process was started with.
pub fn program_of(pid: u32) -> Option<String> {
    let words = about::arguments(pid);
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let name = name.map(|name| name.to_string_lossy().into_owned());
    name.or_else(|| about::name(pid))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// One process, this one, that was begun.
    fn begun() -> (Members, u32) {
        let wanted = Wanted {
            snapshots: true,
            profiles: true,
        };
        let mut members = Members::new(Path::new("/nowhere"), wanted);
        let pid = std::process::id();
        members.on(Event::Began {
            pid,
            parent: None,
            memory: Memory::Fresh,
        });
        (members, pid)
    }

    #[test]
    fn what_happens_after_the_processes_were_taken_is_not_followed() {
        let (mut members, pid) = begun();
        assert_eq!(members.close().len(), 1);
        let status = ExitStatus::from_raw(0);
        for event in [
            Event::Replaced { pid },
            Event::Began {
                pid: pid + 1,
                parent: Some(pid),
                memory: Memory::Copied,
            },
            Event::Ending {
                pid,
                thread: pid,
                status,
            },
            Event::Ended {
                pid,
                status: Some(status),
            },
        ] {
            members.on(event);
            assert!(members.list.is_empty(), "{event:?}");
        }
    }

    #[test]
    fn what_was_read_of_a_program_is_not_kept_for_the_next_one() {
        let (mut members, pid) = begun();
        for is_replaced in [true, false] {
            let turn = members.turns().remove(0);
            if is_replaced {
                members.on(Event::Replaced { pid });
            }
            members.keep(Found {
                turn,
                process: Err(Error::NoProcess(pid)),
                stacks: None,
                reading: None,
                cost: Duration::ZERO,
            });
            assert_eq!(members.list[0].why_not.is_none(), is_replaced);
        }
    }
}
