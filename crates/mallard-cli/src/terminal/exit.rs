//! Exit codes, the same for every command: 0 done, 1 failed or found worse, 2 a mistake on the
//! command line, 3 cannot tell, 126 and 127 a program that cannot be run or found, 130 interrupted.

use mallard_allocators::Error;

pub const USAGE: u8 = 2;
pub const CANNOT_TELL: u8 = 3;
/// The same as a shell's for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// A mistake on the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// What was asked cannot be told.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CannotTell(String);

/// The user stopped the command before it had anything to show.
#[derive(Debug, thiserror::Error)]
#[error("interrupted before anything was measured")]
pub struct Interrupted;

/// A program failed and left nothing to show. The exit code is the program's.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct ProgramFailed {
    pub code: u8,
    pub why: String,
}

/// The user stopped a command whose runs say something only together; so many blocks are lost.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: blocks discarded: {0}; a result needs the complete set")]
pub struct Incomplete(pub usize);

/// An error for a mistake on the command line.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// An error because what was asked cannot be told.
pub fn cannot_tell(message: impl Into<String>) -> anyhow::Error {
    CannotTell(message.into()).into()
}

/// The exit code for an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() {
        return USAGE;
    }
    if error.is::<CannotTell>() {
        return CANNOT_TELL;
    }
    let is_stopped = matches!(error.downcast_ref(), Some(mallard_runner::Error::Stopped));
    if is_stopped || error.is::<Interrupted>() || error.is::<Incomplete>() {
        return INTERRUPTED;
    }
    if let Some(failed) = error.downcast_ref::<ProgramFailed>() {
        return failed.code;
    }
    match error.downcast_ref::<Error>() {
        Some(Error::ProgramNotFound { .. }) => 127,
        Some(Error::Program { .. }) => 126,
        Some(
            Error::UnknownAllocator { .. }
            | Error::CustomSyntax { .. }
            | Error::NameTaken { .. }
            | Error::Library { .. },
        ) => USAGE,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts read these: none may change (`docs/versioning.md`).
    #[test]
    fn every_error_has_its_code() {
        assert_eq!((USAGE, CANNOT_TELL, INTERRUPTED), (2, 3, 130));
        let name = || "x".to_owned();
        let not_found = Error::ProgramNotFound {
            name: name(),
            looked: name(),
        };
        let not_run = Error::Program {
            program: "x".into(),
            problem: name(),
        };
        let failed = ProgramFailed {
            code: 7,
            why: name(),
        };
        let errors: [(anyhow::Error, u8); 10] = [
            (anyhow::anyhow!("it failed"), 1),
            (usage("a mistake"), 2),
            (cannot_tell("no map"), 3),
            (Error::NameTaken { name: name() }.into(), 2),
            (failed.into(), 7),
            (not_run.into(), 126),
            (not_found.into(), 127),
            (Interrupted.into(), 130),
            (Incomplete(3).into(), 130),
            (mallard_runner::Error::Stopped.into(), 130),
        ];
        for (error, code) in errors {
            assert_eq!(code_of(&error), code, "{error}");
        }
    }
}
