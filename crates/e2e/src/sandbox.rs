//! Runs a program in an empty folder of its own with an environment of only what is named here. So
//! a run depends on neither the user's shell nor the surrounding `cargo test`, and two runs of a
//! program can be compared byte for byte.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::library::{Allocator, Library};
use crate::process::{self, Outcome};
use crate::witness::{self, Testimony};

/// What toolchains need to find their files; everything else is left out.
const PASSED_ON: &[&str] = &[
    "PATH",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_HOME",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "JAVA_HOME",
    "GOROOT",
];

/// Tells a program that it runs under an emulator, see `programs/check.h`.
const EMULATED: &str = "E2E_EMULATED";

/// Test programs work for some seconds, but for minutes in the debug build on a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);

/// An empty folder and an allocator.
#[derive(Debug)]
pub struct Sandbox<'a> {
    folder: PathBuf,
    witness_log: PathBuf,
    /// The folder that has the library under jemalloc's name, for `LD_LIBRARY_PATH`.
    jemalloc: Option<PathBuf>,
    pub allocator: Allocator<'a>,
    /// The folder that contains a temporary sandbox, removed with it.
    _root: Option<tempfile::TempDir>,
}

impl<'a> Sandbox<'a> {
    /// Creates the folder anew. The caller gives the same path for each allocator, because programs
    /// may write paths to their output.
    pub fn new(root: &Path, allocator: Allocator<'a>) -> Sandbox<'a> {
        let folder = root.join("work");
        let witness_log = root.join(format!("witness-{}", allocator.name()));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)
                .unwrap_or_else(|error| panic!("cannot empty {}: {error}", folder.display()));
        }
        std::fs::create_dir_all(folder.join("tmp"))
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        let _ = std::fs::remove_file(&witness_log);
        let jemalloc = match allocator {
            Allocator::InPlaceOfJemalloc(library) => Some(link_as_jemalloc(root, library)),
            Allocator::System | Allocator::Preload(_) => None,
        };
        Sandbox {
            folder,
            witness_log,
            jemalloc,
            allocator,
            _root: None,
        }
    }

    /// A sandbox in a temporary folder, for runs that are not compared with others.
    pub fn temporary(allocator: Allocator<'a>) -> Sandbox<'a> {
        let root = scratch("sandbox").unwrap_or_else(|error| panic!("{error}"));
        let sandbox = Sandbox::new(root.path(), allocator);
        Sandbox {
            _root: Some(root),
            ..sandbox
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file into the folder and returns its path.
    pub fn write(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .unwrap_or_else(|error| panic!("cannot make {}: {error}", parent.display()));
        }
        std::fs::write(&path, contents)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    /// A file that a program wrote into the folder.
    ///
    /// # Errors
    /// The program did not write it.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let path = self.path(name);
        std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    /// A command that runs the program on this sandbox's allocator, in its folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.plain_command(program);
        command
            .env("LD_PRELOAD", self.preload())
            .env(witness::VARIABLE, &self.witness_log);
        // musl's loader knows no library by its soname, so it looks for what is preloaded once more
        // if a program is linked with it.
        let linked = (self.allocator.library()).filter(|_| crate::target().is_musl());
        if let Some(folder) = (self.jemalloc.as_deref()).or(linked.and_then(Library::folder)) {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command
    }

    /// As [`Sandbox::command`] for a script of the shell, which itself is not on the allocator: it
    /// may be of another C library than the programs that it starts, which are.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = self.command("sh");
        let script = format!("export LD_PRELOAD=\"$E2E_PRELOAD\"; {script}");
        command
            .env_remove("LD_PRELOAD")
            .env("E2E_PRELOAD", self.preload())
            .args(["-c", &script]);
        command
    }

    /// What the sandbox's programs are started with in `LD_PRELOAD`.
    fn preload(&self) -> OsString {
        self.allocator.preload(&[&witness::object()])
    }

    /// A command without a preloaded allocator, for preparations that are not under test.
    pub fn plain_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = crate::target().command(program);
        command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .env_clear();
        if crate::target().is_emulated() {
            command.env(EMULATED, "1");
        }
        for variable in PASSED_ON {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        // rustup and pyenv find their defaults in the user's home, which nothing else may see.
        if let Some(home) = std::env::var_os("HOME") {
            for (variable, folder) in [
                ("RUSTUP_HOME", ".rustup"),
                ("CARGO_HOME", ".cargo"),
                ("PYENV_ROOT", ".pyenv"),
            ] {
                let folder = Path::new(&home).join(folder);
                if std::env::var_os(variable).is_none() && folder.is_dir() {
                    command.env(variable, folder);
                }
            }
        }
        command
            .env("HOME", &self.folder)
            .env("TMPDIR", self.path("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC");
        command
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// It cannot be started, takes too long, or does not exit with 0.
    pub fn run(&self, command: &mut Command) -> Result<Outcome, String> {
        process::run(command, RUN_TIMEOUT)?.success()
    }

    /// Like [`Sandbox::run`], with standard input.
    ///
    /// # Errors
    /// As [`Sandbox::run`].
    pub fn run_with_input(&self, command: &mut Command, input: &[u8]) -> Result<Outcome, String> {
        process::run_with_input(command, input, RUN_TIMEOUT)?.success()
    }

    /// Runs the command to its end, whatever its status.
    ///
    /// # Errors
    /// It cannot be started or takes too long.
    pub fn run_to_any_end(&self, command: &mut Command) -> Result<Outcome, String> {
        process::run(command, RUN_TIMEOUT)
    }

    /// Runs one of the tests' own programs, and checks that the allocator served it.
    ///
    /// # Panics
    /// If it cannot be started, takes too long, or was served by another allocator.
    pub fn run_own(&self, command: &mut Command) -> Outcome {
        let outcome = self
            .run_to_any_end(command)
            .unwrap_or_else(|error| panic!("on {}: {error}", self.allocator.name()));
        if let Some(library) = self.allocator.library() {
            let testimonies = self.testimonies();
            assert!(
                !testimonies.is_empty(),
                "no process said who serves it: {}",
                outcome.account()
            );
            for testimony in testimonies {
                assert!(
                    testimony.served_by(library),
                    "{} was served by {:?}",
                    testimony.program,
                    testimony.providers
                );
            }
        }
        outcome
    }

    /// What the processes of all runs so far reported about their allocator.
    pub fn testimonies(&self) -> Vec<Testimony> {
        witness::read(&self.witness_log)
    }
}

/// A folder with a link from jemalloc's name to the library, which is how users replace jemalloc.
fn link_as_jemalloc(root: &Path, library: &Library) -> PathBuf {
    let folder = root.join(format!("jemalloc-{}", library.name));
    let link = folder.join("libjemalloc.so.2");
    std::fs::create_dir_all(&folder)
        .and_then(|()| match std::fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::os::unix::fs::symlink(&library.shared, &link),
        })
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", link.display()));
    folder
}

/// A new folder for a test's files, removed when the value is dropped. An error is a sentence.
pub fn scratch(name: &str) -> Result<tempfile::TempDir, String> {
    let parent = crate::target_dir().join("e2e");
    std::fs::create_dir_all(&parent)
        .map_err(|error| format!("cannot make {}: {error}", parent.display()))?;
    tempfile::Builder::new()
        .prefix(name)
        .tempdir_in(&parent)
        .map_err(|error| format!("cannot make a folder in {}: {error}", parent.display()))
}
