//! A process that exists: running, stopped or hung. It is only read, and its threads are not
//! stopped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use mallard_inspect::memory::Mapped;
use mallard_inspect::memory::process::ProcessMemory;
use mallard_inspect::process::now_ns;
use mallard_procfs::{Stat, about, mapping, stat};

use super::records::{FRACTION_BITS, Root, Thread};
use super::{Error, Reading, assembly, notes, root_of, since_1970, survey};
use crate::model::{Allocated, Mapping, Text};

/// A process whose profile can be read again and again.
pub struct Process {
    pid: u32,
    name: String,
    memory: ProcessMemory,
    root_at: u64,
}

/// Its name, its memory, and what is mapped there.
fn look(pid: u32) -> Result<(String, ProcessMemory, Vec<Mapped>), Error> {
    let Some(name) = about::name(pid) else {
        return Err(Error::NoProcess(pid));
    };
    let mapped = mapped(pid).map_err(|error| failed(pid, &name, &error))?;
    if mapped.is_empty() {
        return Err(without_memory(pid, name));
    }
    let some = mapped.first().map_or(0, |mapped| mapped.start);
    let memory = ProcessMemory::open(pid, some);
    let memory = memory.map_err(|error| failed(pid, &name, &error))?;
    Ok((name, memory, mapped))
}

/// Mappings with code of any process that may be read, with their build ids.
///
/// # Errors
/// The process is gone, or may not be read.
pub fn code(pid: u32) -> Result<Vec<Mapping>, Error> {
    let (_, memory, mapped) = look(pid)?;
    Ok(survey(&memory, mapped).0)
}

/// The figures of a call stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfStack {
    /// Blocks and bytes in use.
    pub live: [u64; 2],
    /// Blocks and bytes that were ever allocated.
    pub ever: [u64; 2],
    /// Blocks that were freed, and the sum of their lifetimes in nanoseconds.
    pub freed: [u64; 2],
}

/// The figures of each call stack, by the addresses of its locations.
pub type Stacks = HashMap<Vec<u64>, OfStack>;

impl Process {
    /// Finds the profiler's records of a process.
    ///
    /// # Errors
    /// The process is gone, may not be read, does not run on this version of Mallard, or was never
    /// sampled.
    pub fn open(pid: u32) -> Result<Process, Error> {
        let (name, memory, mapped) = look(pid)?;
        let shown = format!("{name} ({pid})");
        let (_, roots) = survey(&memory, mapped);
        let (root_at, _) = root_of(&memory, &roots, &shown)?;
        Ok(Process {
            pid,
            name: shown,
            memory,
            root_at,
        })
    }

    /// The same records in a process that was just forked from this one.
    ///
    /// # Errors
    /// It is gone, or may not be read.
    pub fn of_fork(&self, pid: u32) -> Result<Process, Error> {
        let name = about::name(pid).ok_or(Error::NoProcess(pid))?;
        let memory = ProcessMemory::open(pid, self.root_at);
        Ok(Process {
            memory: memory.map_err(|error| failed(pid, &name, &error))?,
            name: format!("{name} ({pid})"),
            pid,
            root_at: self.root_at,
        })
    }

    /// Reads its profile as it is now.
    ///
    /// # Errors
    /// The process has ended, or its records are damaged.
    pub fn read(&self) -> Result<Reading, Error> {
        let memory = &self.memory;
        let root = self.root()?;
        let threads = Threads::of(self.pid);
        let records = root.records(memory, &|tid, born| threads.has_ended(tid, born))?;
        let counted = root.allocated(memory).map(|(bytes, at_ns)| {
            let age = Duration::from_nanos(now_ns().saturating_sub(at_ns));
            Allocated { bytes, age }.to_string()
        });
        // After the records: a library may have been loaded since the last time.
        let (code, _) = survey(memory, mapped(self.pid)?);
        let thread = |thread: Thread| -> Text {
            let Thread { number, tid, .. } = thread;
            let tid = threads.here(tid).filter(|_| !thread.has_ended);
            let name = tid.and_then(|tid| about::thread_name(self.pid, tid));
            match (name, tid) {
                (Some(name), Some(tid)) => format!("{name} {tid}").into(),
                _ => format!("thread {number} (ended)").into(),
            }
        };
        let mut profile = assembly::profile(&root, &records, counted, code, &thread);
        profile.time_nanos = since_1970(SystemTime::now());
        Ok(Reading {
            profile,
            name: self.name.clone(),
            pid: Some(about::number_inside(self.pid).unwrap_or(self.pid)),
            notes: notes(&root, &records),
        })
    }

    /// The figures of each call stack.
    ///
    /// # Errors
    /// As for [`Process::read`].
    pub fn stacks(&self) -> Result<Stacks, Error> {
        let records = self.root()?.sites(&self.memory)?;
        let sites = records.sites.into_iter().map(|site| {
            let frames = site.frames.iter().map(|frame| frame.saturating_sub(1));
            let counted = |[blocks, bytes]: [u64; 2]| [blocks >> FRACTION_BITS, bytes];
            let of_stack = OfStack {
                live: counted(site.live),
                ever: counted(site.ever),
                freed: [site.freed, site.lived_ms.saturating_mul(NS_PER_MS)],
            };
            (frames.collect(), of_stack)
        });
        Ok(sites.collect())
    }

    /// The root block as it is now.
    fn root(&self) -> Result<Root, Error> {
        Root::read(&self.memory, self.root_at)?.ok_or_else(|| Error::NeverOn(self.name.clone()))
    }
}

/// When the threads of a process began. The system gives the number of one that has ended to a new
/// one.
struct Threads {
    pid: u32,
    /// Of a process in a container, the numbers here of threads by those that they have in there;
    /// none if they are the same.
    here: Option<HashMap<u32, u32>>,
    /// What to take off times since the system started, for those of the monotonic clock, which
    /// stands still while the system sleeps.
    slept_ns: u64,
    began_ns: RefCell<HashMap<u32, u64>>,
}

impl Threads {
    fn of(pid: u32) -> Threads {
        let now = |clock: libc::clockid_t| {
            let mut at = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: the system writes one time.
            unsafe { libc::clock_gettime(clock, &raw mut at) };
            at.tv_sec as u64 * NS_PER_S + at.tv_nsec as u64
        };
        let monotonic = now(libc::CLOCK_MONOTONIC);
        Threads {
            pid,
            here: about::threads_by_number_inside(pid),
            slept_ns: now(libc::CLOCK_BOOTTIME).saturating_sub(monotonic),
            began_ns: RefCell::default(),
        }
    }

    /// The number here of the thread that knows itself by this one.
    fn here(&self, tid: u32) -> Option<u32> {
        match &self.here {
            Some(here) => here.get(&tid).copied(),
            None => Some(tid),
        }
    }

    /// Whether the thread that has this number now began after this time, or there is none.
    fn has_ended(&self, tid: u32, born_ns: u64) -> bool {
        let mut known = self.began_ns.borrow_mut();
        let began = *known.entry(tid).or_insert_with(|| {
            let began = self.here(tid).and_then(|tid| began_ns(self.pid, tid));
            began.map_or(u64::MAX, |began| began.saturating_sub(self.slept_ns))
        });
        // The time of a sample may be a coarse one.
        born_ns.saturating_add(CLOCK_ERROR_NS) < began
    }
}

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;
/// How far the times of samples and of threads may be behind.
const CLOCK_ERROR_NS: u64 = 30_000_000;

/// When a thread began: nanoseconds since the system started.
fn began_ns(pid: u32, tid: u32) -> Option<u64> {
    let began = stat::time_of(Stat::of_thread(pid, tid)?.start_ticks);
    u64::try_from(began.as_nanos()).ok()
}

fn mapped(pid: u32) -> io::Result<Vec<Mapped>> {
    let mappings = mapping::all(pid)?.into_iter();
    Ok(mappings.map(Mapped::from).collect())
}

/// A process whose map is empty: one that has ended, or a thread of the kernel.
fn without_memory(pid: u32, name: String) -> Error {
    match Stat::of(pid) {
        Some(stat) if stat.has_ended() => Error::Zombie(pid, name),
        Some(_) => Error::Kernel(pid, name),
        None => Error::NoProcess(pid),
    }
}

/// Explains why the system refuses.
fn failed(pid: u32, name: &str, error: &io::Error) -> Error {
    if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) {
        return Error::NoProcess(pid);
    }
    let owner = about::owner(pid).unwrap_or(0);
    // SAFETY: geteuid has no preconditions.
    let own = unsafe { libc::geteuid() };
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    let advice = if owner != own {
        format!("{error}; run this as that user or as root")
    } else if !matches!(scope, "" | "0") {
        format!(
            "{error}; kernel.yama.ptrace_scope is {scope}: run this as root, or `sysctl kernel.yama.ptrace_scope=0` first"
        )
    } else {
        format!("{error}; run this as root")
    };
    Error::Denied {
        pid,
        name: name.to_owned(),
        user: user(owner),
        advice,
    }
}

/// The name of a user, or the number.
fn user(uid: u32) -> String {
    let number = uid.to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users
        .lines()
        .find(|line| line.split(':').nth(2) == Some(number.as_str()));
    let name = line.and_then(|line| line.split(':').next());
    name.map_or(number.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_from_before_a_thread_began_is_of_another_thread() {
        let own = std::process::id();
        let threads = Threads::of(own);
        let began = began_ns(own, own).unwrap() - threads.slept_ns;
        assert!(!threads.has_ended(own, began));
        assert!(threads.has_ended(own, began - NS_PER_S));
        assert!(
            threads.has_ended(u32::MAX, began),
            "there is no such thread"
        );
        assert_eq!(threads.here(own), Some(own), "it is in no container");
    }
}
