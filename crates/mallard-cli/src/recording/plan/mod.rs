//! The plan that replays a recording: one that was kept, or else compiled.

mod cache;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use mallard_trace::Recording;
use mallard_trace::plan::{self, Family, Plan};

use crate::terminal::progress::Spinner;
use cache::Kept;

/// The plan of a family of the recording in `file`: one that was kept, or else compiled. Returns
/// its path, which is `path` if it is not kept.
pub fn compile(
    serial: bool,
    recording: &mut Recording<File>,
    file: &Path,
    family: &Family,
    path: &Path,
) -> Result<(PathBuf, Plan)> {
    let spinner = Spinner::new();
    spinner.show("compiling the recording".to_owned());
    let how = plan::Options { serial };
    let kept = Kept::of(recording, file, family, how);
    if let Some(found) = kept.as_ref().and_then(Kept::find) {
        return Ok(found);
    }
    if let Some(kept) = kept
        && let Ok(made) = kept.make(|file| plan::compile(recording, family, how, file))
    {
        return Ok(made);
    }
    // A recording that cannot be compiled says so here, and a folder that is full does not matter.
    let to = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path);
    let to = to.with_context(|| format!("cannot write {}", path.display()))?;
    let plan = plan::compile(recording, family, how, &to)?;
    if plan.calls == 0 {
        bail!("process {} made no calls", family.processes[0]);
    }
    Ok((path.to_owned(), plan))
}
