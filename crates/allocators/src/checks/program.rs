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
use super::system::{Libc, System, newer_kernel};
use crate::cache::files;
use crate::{Allocator, Error};

/// A program that can take a preloaded library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file to start, as found in `PATH`.
    pub path: PathBuf,
    /// The file that the kernel executes in the end: `path` itself, or the interpreter of a script.
    pub executable: PathBuf,
}

impl Program {
    /// Checks that the program's loader takes an allocator's library: the C library of both is the
    /// same, and the program's has what the allocator's needs.
    pub fn takes(&self, allocator: &Allocator) -> Result<(), Error> {
        let Some(library) = &allocator.file else {
            return Ok(());
        };
        let problem = |problem: String| Error::Library {
            file: library.clone(),
            problem,
        };
        let theirs = Elf::read(library).map_err(|it| problem(it.to_string()))?;
        match self.system().and_then(|system| system.lacks(&theirs)) {
            Some(lack) => Err(problem(lack)),
            None => Ok(()),
        }
    }

    fn system(&self) -> Option<System> {
        System::of(&Elf::read(&self.executable).ok()?)
    }
}

/// Linux's limit on scripts whose interpreters are scripts.
const INTERPRETERS_MAX: u32 = 4;

/// Finds `name` in `PATH` (a name with a slash is a path) and checks that a library can be
/// preloaded into it: executable, a dynamically linked 64-bit program of this machine, neither
/// setuid nor setgid nor with file capabilities. For a script, checks the interpreter.
pub fn check(name: &str) -> Result<Program, Error> {
    checked(name, |path, found| {
        check_rights(path, found)?;
        check_loader(path)
    })
}

/// Finds `name` in `PATH` and checks only that this system can run it: for a program that runs as
/// it is.
pub fn check_as_is(name: &str) -> Result<Program, Error> {
    let mut checked = checked(name, |path, _| check_runs(path))?;
    checked.executable.clone_from(&checked.path);
    Ok(checked)
}

fn checked(
    name: &str,
    fit: impl Fn(&Path, &fs::Metadata) -> Result<(), String>,
) -> Result<Program, Error> {
    let path = find(name)?;
    match executable_of(&path, &fit, INTERPRETERS_MAX) {
        Ok(executable) => Ok(Program { path, executable }),
        Err(problem) => Err(Error::Program {
            program: path,
            problem,
        }),
    }
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

/// Follows scripts to their interpreter and checks that the interpreter is fit. The error is half a
/// sentence about the file.
fn executable_of(
    path: &Path,
    fit: &dyn Fn(&Path, &fs::Metadata) -> Result<(), String>,
    interpreters_left: u32,
) -> Result<PathBuf, String> {
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
        return executable_of(&interpreter, fit, interpreters_left - 1)
            .map_err(|problem| format!("of its interpreter {}: {problem}", interpreter.display()));
    }
    fit(path, &found)?;
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

/// Rejects files that no loader, or a loader of another C library, would load, and those for which
/// something is missing.
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
    if elf.interpreter.is_none() && elf.library {
        return Err("it is a library, not a program".to_owned());
    }
    let Some(system) = System::of(&elf) else {
        return Err(
            "it is statically linked, so no library can be preloaded into it; \
                     link it dynamically, or with libmallard.a"
                .to_owned(),
        );
    };
    let carried =
        Elf::parse(files::LIBRARY).map_err(|problem| format!("libmallard.so {problem}"))?;
    if let (Some(theirs), Some(ours)) = (Libc::of(&elf), Libc::of(&carried))
        && theirs != ours
    {
        return Err(format!(
            "its C library is {theirs} (its loader is {}), and the libraries of this command are \
             for {ours}; preload Mallard's build for {theirs} (LD_PRELOAD=/path/libmallard.so)",
            system.loader
        ));
    }
    check_needs(&elf, &system)?;
    match system.lacks(&carried) {
        Some(lack) => Err(format!("libmallard.so {lack}")),
        None => Ok(()),
    }
}

/// Rejects programs that this system cannot run at all.
fn check_runs(path: &Path) -> Result<(), String> {
    match Elf::read(path) {
        Err(problem @ NotElf::OtherMachine(_)) if !has_emulator(path) => {
            Err(format!("it {problem}"))
        }
        // Another format is the kernel's to judge: it may have been taught it.
        Err(_) => Ok(()),
        Ok(elf) => match System::of(&elf) {
            Some(system) => check_needs(&elf, &system),
            None => newer_kernel(&elf).map_or(Ok(()), |lack| Err(format!("it {lack}"))),
        },
    }
}

/// Whether the kernel has been taught to run such programs for another machine by an emulator.
fn has_emulator(program: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(program).and_then(|file| file.take(256).read_to_end(&mut head));
    let known = fs::read_dir("/proc/sys/fs/binfmt_misc");
    let mut known = known.into_iter().flatten().flatten();
    let mut is_taught = || {
        known.any(|entry| {
            let entry = fs::read_to_string(entry.path()).unwrap_or_default();
            takes(&entry, &head)
        })
    };
    read.is_ok() && is_taught()
}

/// Whether an entry of binfmt_misc takes files with that beginning. It has a name and a value in
/// each line; the value of `magic` has two digits for each byte.
fn takes(entry: &str, head: &[u8]) -> bool {
    let value = |name| {
        let mut words = entry.lines().filter_map(|line| line.split_once(' '));
        words.find(|word| word.0 == name).map(|word| word.1)
    };
    let bytes = |name| {
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let pairs = value(name)?.as_bytes().chunks(2);
        pairs.map(byte).collect::<Option<Vec<u8>>>()
    };
    let offset = value("offset").and_then(|offset| offset.parse().ok());
    let (Some(magic), Some(at)) = (bytes("magic"), head.get(offset.unwrap_or(0)..)) else {
        return false;
    };
    let mask = bytes("mask").unwrap_or_else(|| vec![0xff; magic.len()]);
    let is_on = entry.starts_with("enabled\n");
    let mut same =
        (magic.iter().zip(&mask).zip(at)).map(|((wanted, mask), is)| (wanted ^ is) & mask);
    is_on && at.len() >= magic.len() && same.all(|differs| differs == 0)
}

/// Rejects a program whose loader is missing, or whose system lacks what it needs.
fn check_needs(elf: &Elf, system: &System) -> Result<(), String> {
    let loader = &system.loader;
    if !Path::new(loader).exists() {
        return Err(format!(
            "its loader {loader} is not installed: install its C library, or build the program on \
             this system"
        ));
    }
    match system.lacks(elf) {
        Some(lack) => Err(format!("it {lack}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_takes_its_own_machine_s_programs_alone() {
        let entry = "enabled\ninterpreter /usr/bin/qemu-riscv64\nflags: OCF\noffset 0\n\
                     magic 7f454c460201010000000000000000000200f300\n\
                     mask ffffffffffffff00fffffffffffffffffeffffff\n";
        let head = |machine| {
            let mut head = b"\x7fELF\x02\x01\x01\x03".to_vec();
            head.resize(16, 0);
            // Position-independent.
            head.extend([3, 0, machine, 0, 1, 0, 0, 0]);
            head
        };
        assert!(takes(entry, &head(243)));
        assert!(!takes(entry, &head(183)));
        assert!(!takes(entry, &head(243)[..18]));
        assert!(!takes(&entry.replace("enabled", "disabled"), &head(243)));
        assert!(!takes("enabled\n", &head(243)), "the folder's `status`");
        let by_name = "enabled\ninterpreter /usr/bin/wine\nflags: \nextension .exe\n";
        assert!(!takes(by_name, &head(243)));
    }
}
