//! Errors, as sentences that name the input and the valid choices.

use std::path::PathBuf;

/// A request that can never succeed: a wrong name, a wrong file, a program that cannot take a
/// preloaded library. An allocator that is only missing on this machine is not an error but
/// [`crate::Unavailable`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown allocator `{name}`{}; choose from {}", suggest(.nearest), .known.join(", "))]
    UnknownAllocator {
        name: String,
        nearest: Option<String>,
        known: Vec<String>,
    },

    #[error(
        "`{spec}` does not name an allocator: expected NAME=/path/to/library.so, or with variables NAME=/path/to/library.so;VARIABLE=VALUE"
    )]
    CustomSyntax { spec: String },

    #[error("there is already an allocator named `{name}`; choose another name")]
    NameTaken { name: String },

    #[error("the library {} {problem}", .file.display())]
    Library { file: PathBuf, problem: String },

    #[error("program `{name}` not found: {looked}")]
    ProgramNotFound { name: String, looked: String },

    #[error("cannot run {}: {problem}", .program.display())]
    Program { program: PathBuf, problem: String },
}

fn suggest(nearest: &Option<String>) -> String {
    match nearest {
        Some(nearest) => format!(" (did you mean `{nearest}`?)"),
        None => String::new(),
    }
}
