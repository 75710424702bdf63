//! Recordings as `replay` and `trace` read them: [`open`] and [`tell_state`] begin with a file, and
//! [`processes`] chooses among those in it.

pub mod processes;

use std::path::Path;

use anyhow::{Context, Result};
use mallard_trace::Recording;

/// Opens a recording.
pub fn open(path: &Path) -> Result<Recording<std::fs::File>> {
    Recording::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Tells what is missing of a file, on standard error.
pub fn tell_state(path: &Path, recording: &Recording<std::fs::File>) {
    let state = recording.state();
    if state.cut > 0 {
        eprintln!(
            "{}: cut: {} bytes after the last whole chunk are left out",
            path.display(),
            state.cut
        );
    } else if recording.end.is_none() {
        eprintln!(
            "{}: it has no end: its writer did not finish it",
            path.display()
        );
    }
    if state.damaged > 0 {
        eprintln!(
            "{}: {} damaged chunks are left out",
            path.display(),
            state.damaged
        );
    }
}
