//! Whether a library can be preloaded into a program.
//!
//! `LD_PRELOAD` is a request to the dynamic loader. A static program has no loader, a program for
//! another word size or machine loads other libraries, and a program with other privileges than its
//! caller ignores the request. Each would run on glibc's allocator, or its own, and be measured
//! under the wrong name. [`check`] finds all of these before anything runs;
//! [`super::probe::verify_in_target`] finds a program with its own `malloc`.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::elf::{Elf, NotElf};
use crate::Error;

/// A program that can take a preloaded library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file to start, as found in `PATH`.
    pub path: PathBuf,
    /// The file that the kernel executes in the end: `path` itself, or the interpreter of a script.
    pub executable: PathBuf,
}

/// Linux's limit on scripts whose interpreters are scripts.
const INTERPRETERS_MAX: u32 = 4;

/// Finds `name` in `PATH` (a name with a slash is a path) and checks that a library can be
/// preloaded into it: executable, a dynamically linked 64-bit program of this machine, neither
/// setuid nor setgid nor with file capabilities. For a script, checks the interpreter.
pub fn check(name: &str) -> Result<Program, Error> {
    let path = find(name)?;
    let executable = executable_of(&path, INTERPRETERS_MAX).map_err(|problem| Error::Program {
        program: path.clone(),
        problem,
    })?;
    Ok(Program { path, executable })
}

/// Finds `name` in `PATH` and checks only that it can be executed: for a program that runs as it
/// is.
pub fn check_as_is(name: &str) -> Result<Program, Error> {
    let path = find(name)?;
    let problem = match access(&path, Access::EXEC_OK) {
        Ok(()) if path.is_dir() => "it is a folder".to_owned(),
        Ok(()) => {
            return Ok(Program {
                executable: path.clone(),
                path,
            });
        }
        Err(error) => format!("it cannot be executed: {error}"),
    };
    Err(Error::Program {
        program: path,
        problem,
    })
}

/// Looks `name` up as a shell does.
fn find(name: &str) -> Result<PathBuf, Error> {
    let not_found = |looked: String| Error::ProgramNotFound {
        name: name.to_owned(),
        looked,
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(error) => Err(not_found(error.to_string())),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut passed_over = None;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(name);
        if path.is_file() {
            if access(&path, Access::EXEC_OK).is_ok() {
                return Ok(path);
            }
            passed_over.get_or_insert(path);
        }
    }
    Err(not_found(match passed_over {
        Some(path) => format!("{} exists but is not executable", path.display()),
        None if Path::new(name).exists() => {
            format!("not in PATH; to run the file in this folder, use ./{name}")
        }
        None => "it is in no folder of PATH".to_owned(),
    }))
}

/// Follows scripts to their interpreter and checks the interpreter. The error is half a sentence
/// about the file.
fn executable_of(path: &Path, interpreters_left: u32) -> Result<PathBuf, String> {
    let found = fs::metadata(path).map_err(|error| format!("it cannot be read: {error}"))?;
    if found.is_dir() {
        return Err("it is a folder".to_owned());
    }
    match access(path, Access::EXEC_OK) {
        Ok(()) => {}
        Err(Errno::ACCESS) => return Err("it is not executable (chmod +x)".to_owned()),
        Err(error) => return Err(format!("it cannot be executed: {error}")),
    }
    if let Some(line) = script_line(path).map_err(|error| format!("it cannot be read: {error}"))? {
        if interpreters_left == 0 {
            return Err(
                "the chain of scripts that name scripts as interpreters is too long".to_owned(),
            );
        }
        let interpreter = interpreter_of(&line)?;
        return executable_of(&interpreter, interpreters_left - 1)
            .map_err(|problem| format!("of its interpreter {}: {problem}", interpreter.display()));
    }
    check_rights(path, &found)?;
    check_loader(path)?;
    Ok(path.to_owned())
}

/// The text after `#!`, if the file begins with it.
fn script_line(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    fs::File::open(path)?.take(4096).read_to_end(&mut head)?;
    let Some(rest) = head.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let end = rest
        .iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(rest.len());
    Ok(Some(rest[..end].to_vec()))
}

/// The program that a `#!` line names, or the one that its `env` will start.
fn interpreter_of(line: &[u8]) -> Result<PathBuf, String> {
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let Some(interpreter) = words.next().map(PathBuf::from) else {
        return Err("its first line names no interpreter".to_owned());
    };
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return Ok(interpreter);
    }
    let started = words.find(|word| {
        let bytes = word.as_bytes();
        !bytes.starts_with(b"-") && !bytes.contains(&b'=')
    });
    match started.and_then(OsStr::to_str) {
        Some(name) => find(name).map_err(|error| format!("of its interpreter: {error}")),
        None => Ok(interpreter),
    }
}

/// Rejects programs that run with other privileges than their caller.
fn check_rights(path: &Path, found: &fs::Metadata) -> Result<(), String> {
    let ignores = "the loader ignores LD_PRELOAD in such a program; measure a copy without it";
    if found.mode() & 0o4000 != 0 {
        return Err(format!("it is setuid, and {ignores}"));
    }
    if found.mode() & 0o2000 != 0 {
        return Err(format!("it is setgid, and {ignores}"));
    }
    let mut value = [0_u8; 64];
    match rustix::fs::getxattr(path, c"security.capability", &mut value) {
        Ok(length) if length > 0 => Err(format!("it has file capabilities, and {ignores}")),
        // The attribute is missing, or the file system does not support attributes.
        _ => Ok(()),
    }
}

/// Rejects files that no loader, or a loader other than glibc's, would load.
fn check_loader(path: &Path) -> Result<(), String> {
    let elf = Elf::read(path).map_err(|problem| match problem {
        NotElf::OtherFormat => "it is neither an ELF program nor a script with #!".to_owned(),
        NotElf::Narrow => {
            "it is a 32-bit program; the allocators here are 64-bit libraries".to_owned()
        }
        problem => format!("it {problem}"),
    })?;
    if !elf.loadable {
        return Err("it is an object file, not a program".to_owned());
    }
    match elf.interpreter {
        None if elf.library => Err("it is a library, not a program".to_owned()),
        None => Err(
            "it is statically linked, so no library can be preloaded into it; \
                     link it dynamically, or with libmallard.a"
                .to_owned(),
        ),
        Some(loader) if loader.contains("musl") => Err(format!(
            "its loader is musl's ({loader}); the allocators here are built for glibc"
        )),
        Some(_) => Ok(()),
    }
}
