//! The system for which the tests build the library and their programs. It is this machine, unless
//! a variable names another one:
//!
//! - `MALLARD_TARGET` is a target of Rust's: `x86_64-unknown-linux-musl`,
//!   `aarch64-unknown-linux-gnu` or `aarch64-unknown-linux-musl`. Its compilers are those that
//!   `scripts/setup-cross.sh` gets.
//! - `MALLARD_TARGET_PAGE` is the page size that an emulated program is told (4096).
//!
//! Programs for another processor run under qemu. It is a static program and hands its environment
//! on, so `LD_PRELOAD` reaches the emulated loader and no other. Children by `fork` run under it
//! too; a program that the emulated one executes does not, which [`Target::lacks_exec`] is for.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mallard_testing::skipped;

const TARGET: &str = "MALLARD_TARGET";
const PAGE: &str = "MALLARD_TARGET_PAGE";

/// A system whose programs run here.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Rust's name of it; `None` is this machine.
    triple: Option<&'static str>,
    /// The prefix of the compilers' names, before `gcc` and `g++`.
    prefix: &'static str,
    is_emulated: bool,
}

const HOST: Target = Target {
    triple: None,
    prefix: "",
    is_emulated: false,
};

const OTHERS: [Target; 3] = [
    Target {
        triple: Some("x86_64-unknown-linux-musl"),
        prefix: "x86_64-linux-musl-",
        is_emulated: cfg!(not(target_arch = "x86_64")),
    },
    Target {
        triple: Some("aarch64-unknown-linux-gnu"),
        prefix: "aarch64-linux-gnu-",
        is_emulated: cfg!(not(target_arch = "aarch64")),
    },
    Target {
        triple: Some("aarch64-unknown-linux-musl"),
        prefix: "aarch64-linux-musl-",
        is_emulated: cfg!(not(target_arch = "aarch64")),
    },
];

/// The system under test.
///
/// # Panics
/// If `MALLARD_TARGET` names one that the tests do not know.
pub fn target() -> Target {
    let Some(name) = std::env::var_os(TARGET).filter(|name| !name.is_empty()) else {
        return HOST;
    };
    let known = OTHERS.map(|other| other.triple.expect("the others have names"));
    let place = known.iter().position(|&known| name == *known);
    OTHERS[place.unwrap_or_else(|| panic!("{TARGET} is {name:?}, but must be one of {known:?}"))]
}

impl Target {
    /// Rust's name of it, or `None` for this machine.
    pub fn triple(&self) -> Option<&'static str> {
        self.triple
    }

    pub fn is_musl(&self) -> bool {
        let is_host = cfg!(target_env = "musl");
        self.triple
            .map_or(is_host, |triple| triple.ends_with("musl"))
    }

    pub fn is_emulated(&self) -> bool {
        self.is_emulated
    }

    /// Says that the test, or the part of it, is skipped unless the target is this machine: it
    /// needs the machine's own programs or figures.
    pub fn lacks_host(&self, what: &str) -> bool {
        self.lacks(self.triple.is_some(), what)
    }

    /// As [`Target::lacks_host`], on musl: it is about what only glibc has.
    pub fn lacks_glibc(&self, what: &str) -> bool {
        self.lacks(self.is_musl(), what)
    }

    /// As [`Target::lacks_host`], under an emulator: it executes programs, or uses what the
    /// emulator leaves out.
    pub fn lacks_exec(&self, what: &str) -> bool {
        self.lacks(self.is_emulated, what)
    }

    fn lacks(&self, lacks: bool, what: &str) -> bool {
        if lacks {
            let triple = self.triple.unwrap_or("this machine");
            skipped(format_args!("not for {triple}: {what}"));
        }
        lacks
    }

    /// The compiler, for C or C++.
    ///
    /// # Errors
    /// It is not there.
    pub fn compiler(&self, is_cpp: bool) -> Result<PathBuf, String> {
        let Some(triple) = self.triple else {
            return Ok(if is_cpp { "c++" } else { "cc" }.into());
        };
        let name = format!("{}{}", self.prefix, if is_cpp { "g++" } else { "gcc" });
        let path = cross_folder().join("bin").join(name);
        if path.is_file() {
            return Ok(path);
        }
        let path = path.display();
        Err(format!(
            "there is no {path} for {triple}; scripts/setup-cross.sh gets it"
        ))
    }

    /// Makes cargo build for the target. Returns the folder of the target's own builds, in that of
    /// all builds.
    ///
    /// # Panics
    /// If the linker is not there.
    pub fn prepare(&self, cargo: &mut Command) -> &'static str {
        let Some(triple) = self.triple else {
            return "";
        };
        let linker = self.compiler(false).unwrap_or_else(|why| panic!("{why}"));
        let name = triple.to_uppercase().replace('-', "_");
        cargo
            .args(["--target", triple])
            .env(format!("CARGO_TARGET_{name}_LINKER"), linker);
        if self.is_musl() {
            // Otherwise Rust links programs statically with a musl of its own, and makes no shared
            // library.
            cargo.env(
                format!("CARGO_TARGET_{name}_RUSTFLAGS"),
                "-C target-feature=-crt-static -C link-self-contained=no",
            );
        }
        triple
    }

    /// A command for a program, which runs under the emulator if it was built for another
    /// processor.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let program = program.as_ref();
        if !self.is_emulated || !is_foreign(Path::new(program)) {
            return Command::new(program);
        }
        let root = cross_folder().join("aarch64/usr");
        let page = std::env::var_os(PAGE);
        // The newer emulator has pages of 4 KiB alone, the older one is worse in all else.
        let emulator = if page.is_some() {
            "qemu-aarch64-static"
        } else {
            "qemu-aarch64"
        };
        let mut command = Command::new(root.join("bin").join(emulator));
        command.arg("-L").arg(root.join("aarch64-linux-gnu"));
        if let Some(page) = page {
            command.arg("-p").arg(page);
        }
        command.arg(program);
        command
    }
}

/// Whether a file is a program for another processor than this machine's.
fn is_foreign(program: &Path) -> bool {
    /// Where the header of an ELF file tells the processor, and aarch64's number.
    const MACHINE: usize = 18;
    const AARCH64: [u8; 2] = [183, 0];
    let mut header = [0; MACHINE + 2];
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header.starts_with(b"\x7fELF") && header[MACHINE..] == AARCH64
}

/// The folder of `scripts/setup-cross.sh`.
pub fn cross_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        variable("MALLARD_CROSS").unwrap_or_else(|| {
            let home = || variable("HOME").unwrap_or_default().join(".cache");
            let cache = variable("XDG_CACHE_HOME").unwrap_or_else(home);
            cache.join("mallard/cross")
        })
    })
}
