//! Profiles of core files.

use std::path::Path;
use std::time::Duration;

use mallard_inspect::memory::core::{self, Core};

use super::records::Thread;
use super::{Error, Reading, assembly, notes, root_of, since_1970, survey};
use crate::model::Allocated;

/// Reads the profile of a file, if it is a core file, packed by gzip or zstd or not.
///
/// # Errors
/// As for [`read`]; or the core is compressed in a way that is not read here.
pub fn open(path: &Path, root: Option<&Path>) -> Result<Option<Reading>, Error> {
    let Some(bytes) = core::open(path)? else {
        return Ok(None);
    };
    let mut reading = read(&bytes, root)?;
    // A copy may have lost the time of the crash, but has a time.
    let written = path.metadata().and_then(|file| file.modified());
    reading.profile.time_nanos = written.map_or(0, since_1970);
    Ok(Some(reading))
}

/// Reads the profile of a core file. Files of the process are looked for under `root`.
///
/// # Errors
/// The file is not a core file, lacks the profiler's memory, or the process did not run on this
/// version of Mallard or was never sampled.
pub fn read(bytes: &[u8], root: Option<&Path>) -> Result<Reading, Error> {
    let mut core = Core::parse(bytes)?;
    core.open_files(root);
    let mapped = core.mapped();
    let name = match core.pid {
        Some(pid) => format!("{} ({pid})", core.name),
        None => core.name.clone(),
    };
    let (code, roots) = survey(&core, mapped);
    let found = root_of(&core, &roots, &name);
    let read = found.and_then(|(_, root)| Ok((root, root.records(&core, &|_, _| false)?)));
    let (root, records) = match read {
        // What is missing is most likely behind the end.
        Err(error @ (Error::Fault(_) | Error::NoMallard(_))) => {
            return Err(core.short().map_or(error, Error::from));
        }
        read => read?,
    };
    let mut notes = notes(&root, &records);
    notes.extend(core.short().map(|short| short.to_string()));
    let counted = root.allocated(&core).map(|(bytes, _)| {
        let age = Duration::ZERO;
        Allocated { bytes, age }.to_string()
    });
    let profile = assembly::profile(&root, &records, counted, code, &|thread| {
        let Thread { number, tid, .. } = thread;
        format!("thread {number} (tid {tid})").into()
    });
    Ok(Reading {
        profile,
        name,
        pid: core.pid,
        notes,
    })
}
