//! Heap profiles of processes, with names.

use std::sync::{Mutex, PoisonError};

use hyper::StatusCode;
use mallard_inspect::process::{About, Identity};
use mallard_profile::model::Profile;
use mallard_profile::process::Error;
use mallard_profile::view::trim::trimmed;
use mallard_profile::write;
use mallard_profile::{model, names};

use super::answer::Reply;
use crate::profiles::source::{self, Names};

/// The most addresses whose names are kept, over all processes: some 200 bytes each.
const NAMES_MAX: usize = 1 << 20;

/// Which figure a viewer shows first. All are in each profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Heap,
    Allocs,
    Peak,
    Lifetime,
    Frag,
}

impl Kind {
    pub const ALL: [Kind; 5] = [
        Kind::Heap,
        Kind::Allocs,
        Kind::Peak,
        Kind::Lifetime,
        Kind::Frag,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Allocs => "allocs",
            Kind::Peak => "peak",
            Kind::Lifetime => "lifetime",
            Kind::Frag => "frag",
        }
    }

    /// What it shows.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::Heap => "blocks in use",
            Kind::Allocs => "all blocks since sampling began",
            Kind::Peak => "blocks that were in use at the peak",
            Kind::Lifetime => "how long freed blocks lived",
            Kind::Frag => "free memory beside blocks in use",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn sample_type(self) -> &'static str {
        match self {
            Kind::Heap => model::INUSE_SPACE,
            Kind::Allocs => model::ALLOC_SPACE,
            Kind::Peak => model::PEAK_SPACE,
            Kind::Lifetime => model::LIFETIME,
            Kind::Frag => model::FRAG_SPACE,
        }
    }
}

/// The names that processes got before, the one that was asked for last at the end.
#[derive(Debug, Default)]
pub struct Known(Mutex<Vec<(Identity, Names)>>);

impl Known {
    /// Takes the names of a process out, and forgets those of processes that have ended.
    fn take(&self, identity: &Identity) -> Names {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = |of: &Identity| About::of(of.pid).is_some_and(|it| it.identity == *of);
        known.retain(|(of, _)| runs(of));
        let place = known.iter().position(|(of, _)| of == identity);
        place.map_or_else(Names::default, |place| known.remove(place).1)
    }

    /// Keeps the names of a process, instead of the least recently used ones.
    fn put(&self, identity: Identity, names: Names) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _)| *of != identity);
        known.push((identity, names));
        let mut all: usize = known.iter().map(|(_, names)| names.len()).sum();
        while all > NAMES_MAX {
            all -= known.remove(0).1.len();
        }
    }
}

/// Reads the profile of a process, gives it names and packs it. With an earlier profile, this is
/// what has changed since.
///
/// # Errors
/// The process cannot be read, or was never sampled.
pub fn read(
    pid: u32,
    kind: Kind,
    search: &names::Options,
    known: &Known,
    before: Option<&Profile>,
) -> Result<Vec<u8>, Error> {
    let identity = About::of(pid).ok_or(Error::NoProcess(pid))?.identity;
    let mut names = known.take(&identity);
    let profile = source::running(pid, search, &mut names, before);
    known.put(identity, names);
    let profile = profile?;
    let mut profile = trimmed(&profile);
    let kinds = &profile.types;
    profile.default_type = kinds.iter().position(|t| &*t.kind == kind.sample_type());
    let mut bytes = Vec::new();
    write::pprof(&profile, &mut bytes)?;
    Ok(bytes)
}

/// The answer to a process whose profile cannot be read.
pub fn failure(error: &Error) -> Reply {
    let status = match error {
        Error::NoProcess(_) | Error::Zombie(..) | Error::Kernel(..) | Error::NoMallard(_) => {
            StatusCode::NOT_FOUND
        }
        Error::Denied { .. } => StatusCode::FORBIDDEN,
        // There is a profile once the process samples.
        Error::NeverOn(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Reply::failure(status, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_as_long_as_their_process() {
        let known = Known::default();
        let identity = About::of(std::process::id()).unwrap().identity;
        let before = Identity {
            started: identity.started + 1,
            ..identity
        };
        known.put(identity.clone(), Names::default());
        known.put(before.clone(), Names::default());
        known.put(identity.clone(), Names::default());
        let all = |known: &Known| known.0.lock().unwrap().len();
        assert_eq!(all(&known), 2);
        // No process has that number and that start.
        known.take(&before);
        assert_eq!(all(&known), 1);
        known.take(&identity);
        assert_eq!(all(&known), 0, "they are taken out");
    }
}
