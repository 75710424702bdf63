//! Recordings of what programs allocate, for `replay`, `trace` and `tune`: [`open`] and
//! [`warn_of_state`] begin with a file, and [`processes`] chooses among those in it.
//!
//! A [`plan`] is what the workload `replay` executes with its [`arguments`]. What that costs by
//! itself is a [`cost`]. A [`replay`] has all three, for commands that run it by themselves.

pub mod arguments;
pub mod cost;
pub mod plan;
pub mod processes;
pub mod replay;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use mallard_trace::Recording;
use mallard_trace::event::UNIT_NS;

/// Opens a recording.
pub fn open(path: &Path) -> Result<Recording<std::fs::File>> {
    Recording::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Prints on standard error what a file lacks.
pub fn warn_of_state(path: &Path, recording: &Recording<std::fs::File>) {
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

/// A time in the units of a recording.
pub fn units_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / u128::from(UNIT_NS)).unwrap_or(u64::MAX)
}
