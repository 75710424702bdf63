//! Heap profiles read out of a process's memory, with no help of the process: it may be running,
//! stopped, hung, or dead with a core file left.
//!
//! - [`memory`] is what is read: by address, from a process ([`live`]) or a core file ([`core`]).
//! - [`image`] finds the build ids of programs and libraries, and the note that leads to Mallard's
//!   root block.
//! - [`records`] follows the lists that begin there; [`assemble`] makes a profile of them.
//!
//! A running process changes its records meanwhile. Each is copied as it was at one moment; those
//! for which that failed are counted. The process may be a hostile one, and a core any file: reading
//! takes bounded memory.

mod assemble;
pub mod core;
mod image;
pub mod live;
mod memory;
mod records;

use crate::model::{Mapping, Profile, Text};
use image::Image;
use memory::{Fault, Memory};
use records::{LAYOUT, Records, Root};

/// Why no profile can be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("process {0} ({1}) has ended; its parent has not taken note of that yet")]
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
    #[error("it is no core file: {0}")]
    NoCore(&'static str),
    #[error("the file is packed by {0}")]
    Packed(&'static str),
    #[error("the core file is cut short: it ends at {has} of {needs} bytes")]
    Short { has: u64, needs: u64 },
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    fn damaged(what: &'static str) -> Error {
        Error::Damaged(what)
    }
}

/// A profile, and what is to be known of it.
#[derive(Debug)]
pub struct Reading {
    pub profile: Profile,
    /// `redis-server (4711)`.
    pub name: String,
    pub pid: Option<u32>,
    /// One sentence each.
    pub notes: Vec<String>,
}

/// A mapping of any kind.
#[derive(Debug, Clone)]
struct Mapped {
    mapping: Mapping,
    executable: bool,
}

/// The mappings with code, with their build ids, and the root blocks that were found.
fn survey(memory: &dyn Memory, mapped: Vec<Mapped>) -> (Vec<Mapping>, Vec<u64>) {
    let (mut code, mut roots) = (Vec::new(), Vec::new());
    let mut image = Image::default();
    let mut path: Text = "".into();
    for Mapped {
        mut mapping,
        executable,
    } in mapped
    {
        let is_file = !mapping.path.is_empty() && !mapping.path.starts_with('[');
        if (is_file && mapping.file_offset == 0) || &*mapping.path == "[vdso]" {
            image = image::read(memory, mapping.start).unwrap_or_default();
            path = mapping.path.clone();
            roots.extend(image.root);
        }
        if executable {
            if mapping.path == path {
                mapping.build_id = image.build_id.as_str().into();
            }
            code.push(mapping);
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
