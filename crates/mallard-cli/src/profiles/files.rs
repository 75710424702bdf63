//! Profiles and pages as files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a file whole: a reader never sees a part of it.
pub fn save(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = File::create(&part).map(BufWriter::new).and_then(|mut out| {
        write(&mut out)?;
        out.flush()
    });
    written
        .and_then(|()| fs::rename(&part, path))
        .inspect_err(|_| {
            // What is left of a failed attempt; there may be nothing.
            let _ = fs::remove_file(&part);
        })
        .with_context(|| format!("cannot write {}", path.display()))
}
