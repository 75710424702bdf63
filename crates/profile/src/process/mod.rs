//! Heap profiles read out of a process's memory, without help from the process: it may be running,
//! stopped, hung, or dead with a core file left.
//!
//! - `mallard_inspect::memory` is what is read, by address, from a process ([`live`]) or a core
//!   file ([`core`]). It also finds the build ids of programs and libraries, and the note that
//!   leads to Mallard's root block.
//! - [`records`] follows the lists that begin there, by [`copies`]; [`assembly`] makes a profile of
//!   them.
//!
//! A running process changes its records meanwhile. Each is copied as it was at one moment; those
//! for which that failed are counted. The process may be a hostile one, and a core any file:
//! reading takes bounded memory.

mod assembly;
mod copies;
pub mod core;
pub mod live;
mod records;

use std::time::{SystemTime, UNIX_EPOCH};

use mallard_inspect::memory::image::{self, Image};
use mallard_inspect::memory::{Fault, Mapped, Memory};

use crate::model::{Mapping, Profile};
use records::{LAYOUT, Records, Root};

/// Why no profile can be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("process {0} ({1}) has ended, but its parent has not reaped it")]
    Zombie(u32, String),
    #[error("{0} ({1}) is a thread of the kernel; it has no heap")]
    Kernel(u32, String),
    #[error("process {pid} ({name}) of user {user} cannot be read: {advice}")]
    Denied {
        pid: u32,
        name: String,
        user: String,
        advice: String,
    },
    #[error("{0} does not run on Mallard; `mallard run -- PROGRAM` starts a program on it")]
    NoMallard(String),
    #[error(
        "sampling was never on in {0}: start it with MALLOC_CONF=prof:true, or switch it on with `mallard profile --start PID`"
    )]
    NeverOn(String),
    #[error(
        "the process runs another version of Mallard, whose records have layout {0}; this command reads layout {LAYOUT}"
    )]
    Layout(u32),
    #[error("the profiler's records are damaged: {0}")]
    Damaged(&'static str),
    #[error("the profiler's records cannot be read: {0}")]
    Fault(#[from] Fault),
    #[error("the core file cannot be used: {0}")]
    NoCore(&'static str),
    #[error("the file is compressed with {0}")]
    Packed(&'static str),
    #[error("the core file is cut short: it ends at {has} of {needs} bytes")]
    Short { has: u64, needs: u64 },
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<mallard_inspect::memory::core::Error> for Error {
    fn from(error: mallard_inspect::memory::core::Error) -> Error {
        use mallard_inspect::memory::core::Error as Core;
        match error {
            Core::NoCore(why) => Error::NoCore(why),
            Core::Packed(by) => Error::Packed(by),
            Core::Short { has, needs } => Error::Short { has, needs },
            Core::Io(error) => Error::Io(error),
        }
    }
}

impl Error {
    fn damaged(what: &'static str) -> Error {
        Error::Damaged(what)
    }
}

/// A profile, and notes on it.
#[derive(Debug)]
pub struct Reading {
    pub profile: Profile,
    /// `redis-server (4711)`.
    pub name: String,
    pub pid: Option<u32>,
    /// One sentence each.
    pub notes: Vec<String>,
}

/// The mappings with code, with their build ids, and the root blocks that were found.
fn survey(memory: &dyn Memory, mapped: Vec<Mapped>) -> (Vec<Mapping>, Vec<u64>) {
    let (mut code, mut roots) = (Vec::new(), Vec::new());
    let mut image = Image::default();
    let mut path = String::new();
    for mapped in mapped {
        if mapped.begins_image() {
            image = image::read(memory, mapped.start).unwrap_or_default();
            path.clone_from(&mapped.path);
            roots.extend(image.root);
        }
        if mapped.executable {
            let build_id = if mapped.path == path {
                image.build_id.as_str()
            } else {
                ""
            };
            code.push(Mapping {
                start: mapped.start,
                limit: mapped.limit,
                file_offset: mapped.file_offset,
                path: mapped.path.as_str().into(),
                build_id: build_id.into(),
                deleted: mapped.deleted,
            });
        }
    }
    code.sort_by_key(|mapping| mapping.start);
    roots.sort_unstable();
    roots.dedup();
    (code, roots)
}

/// The root block of the copy of Mallard that samples. There may be several copies: a library that
/// is preloaded, and one that a program contains.
fn root_of(memory: &dyn Memory, roots: &[u64], name: &str) -> Result<(u64, Root), Error> {
    let mut error = Error::NoMallard(name.to_owned());
    for &at in roots {
        match Root::read(memory, at) {
            Ok(Some(root)) => return Ok((at, root)),
            Ok(None) => error = Error::NeverOn(name.to_owned()),
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// What a reader of a profile has to know of how it came about.
fn notes(root: &Root, records: &Records) -> Vec<String> {
    let mut notes = Vec::new();
    if !root.is_on {
        notes.push("sampling is off now: the profile has what was sampled before".to_owned());
    }
    if records.torn > 0 {
        notes.push(format!(
            "{} records changed while they were read; their figures may be of two moments",
            records.torn
        ));
    }
    notes
}

/// The nanoseconds of a profile's time.
fn since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
