//! Heap profiles of processes, with names.

use hyper::StatusCode;
use mallard_profile::names;
use mallard_profile::process::Error;
use mallard_profile::view::trim::trimmed;
use mallard_profile::write;

use super::answer::Answer;
use crate::commands::profile::source;

/// Which figure a viewer shows first. All are in each profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Heap,
    Allocs,
    Peak,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Heap, Kind::Allocs, Kind::Peak];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Allocs => "allocs",
            Kind::Peak => "peak",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn sample_type(self) -> &'static str {
        match self {
            Kind::Heap => "inuse_space",
            Kind::Allocs => "alloc_space",
            Kind::Peak => "peak_space",
        }
    }
}

/// Reads the profile of a process, gives it names and packs it.
///
/// # Errors
/// The process cannot be read, or was never sampled.
pub fn read(pid: u32, kind: Kind, search: &names::Options) -> Result<Vec<u8>, Error> {
    let profile = source::running(pid, search, &mut source::Names::new())?;
    let mut profile = trimmed(&profile);
    let kinds = &profile.types;
    profile.default_type = kinds.iter().position(|t| &*t.kind == kind.sample_type());
    let mut bytes = Vec::new();
    write::pprof(&profile, &mut bytes)?;
    Ok(bytes)
}

/// The answer to a process whose profile cannot be read.
pub fn failure(error: &Error) -> Answer {
    let status = match error {
        Error::NoProcess(_) | Error::Zombie(..) | Error::Kernel(..) | Error::NoMallard(_) => {
            StatusCode::NOT_FOUND
        }
        Error::Denied { .. } => StatusCode::FORBIDDEN,
        // It can be had, once it samples.
        Error::NeverOn(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Answer::failure(status, error)
}
