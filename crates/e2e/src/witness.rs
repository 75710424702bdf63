//! Finds out which file served `malloc`. A tiny object is preloaded after the library. When a
//! process starts, it asks the loader for the file to which each allocation function is bound, and
//! writes one line. Without it, a program that silently fell back to glibc would pass every
//! comparison with glibc.

use std::path::{Path, PathBuf};

use crate::compiler::Source;
use crate::library::Library;

/// The variable that names the witness's output file.
pub const VARIABLE: &str = "MALLARD_E2E_WITNESS";

/// What one process reported at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Testimony {
    /// The program's short name, as the C library knows it.
    pub program: String,
    /// The files that provide `malloc`, `calloc`, `realloc`, `free` and `posix_memalign`.
    pub providers: Vec<PathBuf>,
    /// The file that provides jemalloc's `mallocx`, or `nobody`.
    pub provider_of_mallocx: PathBuf,
}

impl Testimony {
    /// Whether the library provides every function of the C library's.
    pub fn served_by(&self, library: &Library) -> bool {
        !self.providers.is_empty()
            && self
                .providers
                .iter()
                .all(|provider| is_same_file(provider, &library.shared))
    }

    /// Whether the library provides jemalloc's own functions.
    pub fn has_mallocx_of(&self, library: &Library) -> bool {
        is_same_file(&self.provider_of_mallocx, &library.shared)
    }
}

/// The object to preload.
pub fn object() -> PathBuf {
    Source::new("witness.c")
        .flags(&["-shared", "-fPIC", "-O1"])
        .compile()
}

/// All reports in the file; empty if no process started with the witness.
pub fn read(path: &Path) -> Vec<Testimony> {
    let text = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(parse).collect()
}

fn parse(line: &str) -> Testimony {
    let mut fields = line.split('\t');
    let program = fields
        .next()
        .expect("split gives one part at least")
        .to_owned();
    let mut providers: Vec<PathBuf> = fields.map(PathBuf::from).collect();
    Testimony {
        program,
        provider_of_mallocx: providers.pop().unwrap_or_default(),
        providers,
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| a == b)
}
