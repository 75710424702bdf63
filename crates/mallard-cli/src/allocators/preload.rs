//! Ensures that the intended allocator serves a program.
//!
//! Preloading a library is usually enough. But a program may be linked with another allocator, as
//! Debian's redis is with jemalloc. A preloaded library takes precedence over that one. But for
//! glibc nothing is preloaded, so jemalloc's figures would count as glibc's. In that case the C
//! library itself is preloaded, which puts its `malloc` first.

use std::ffi::OsString;
use std::path::PathBuf;

use mallard_allocators::program;
use mallard_allocators::{Allocator, Kind, probe};
use mallard_procfs::mapping;

/// The allocator in the form that must be preloaded into `programs`, after the loader has confirmed
/// the binding. An error is a sentence for the row's cell.
pub fn preloaded(programs: &[OsString], allocator: &Allocator) -> Result<Allocator, String> {
    let Err(refused) = verify(programs, allocator) else {
        return Ok(allocator.clone());
    };
    let libc = match allocator.kind {
        Kind::Glibc => libc(),
        _ => None,
    };
    let Some(file) = libc else {
        return Err(format!("not measured: {refused}"));
    };
    let first = Allocator {
        file: Some(file),
        ..allocator.clone()
    };
    match verify(programs, &first) {
        Ok(()) => Ok(first),
        Err(refused) => Err(format!("not measured: {refused}")),
    }
}

fn verify(programs: &[OsString], allocator: &Allocator) -> Result<(), String> {
    for program in programs {
        let shown = program.to_string_lossy();
        let found = program::check(&shown).map_err(|error| error.to_string())?;
        probe::verify_in_target(&found, allocator)
            .map_err(|reason| format!("{shown}: {reason}"))?;
    }
    Ok(())
}

/// The C library of this process, and of every other process on this machine.
fn libc() -> Option<PathBuf> {
    let mut mappings = mapping::own().ok()?.into_iter();
    let libc = mappings.find(|mapping| mapping.path.ends_with("/libc.so.6") && !mapping.is_deleted);
    libc.map(|mapping| PathBuf::from(mapping.path))
}
