//! Whether a library can be preloaded into a program.

use std::path::PathBuf;

use crate::Error;

/// A program into which a library can be preloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What to start, as found in `PATH`.
    pub path: PathBuf,
    /// What the kernel will execute in the end: `path` itself, or the interpreter of a script.
    pub executable: PathBuf,
}

/// Finds `name` in `PATH` (a name with a slash is a path) and checks that a library can be
/// preloaded into it: executable, a dynamically linked 64-bit program of this machine, neither
/// setuid nor setgid nor with file capabilities. Of a script the interpreter is checked.
pub fn check(name: &str) -> Result<Program, Error> {
    Err(Error::ProgramNotFound {
        name: name.to_owned(),
        looked: String::new(),
    })
}
