//! Compiles the tests' own C and C++ programs, from `programs/`. Each combination of source and
//! flags is compiled once per test process. The compiler itself never runs on an allocator of ours.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use crate::folder;

/// A program to compile, with its flags.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    file: String,
    /// Instead of the system's for the language.
    compiler: Option<&'static str>,
    flags: Vec<String>,
    /// Objects and libraries, which follow the source on the command line.
    inputs: Vec<PathBuf>,
}

/// The result for one program. The lock on the map is not held while a compiler runs.
type Slot = Arc<OnceLock<Result<PathBuf, String>>>;

impl Source {
    /// A source file in `programs/`.
    pub fn new(file: &str) -> Source {
        Source {
            file: file.to_owned(),
            compiler: None,
            flags: Vec::new(),
            inputs: Vec::new(),
        }
    }

    pub fn flags(mut self, flags: &[&str]) -> Source {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    pub fn compiler(mut self, name: &'static str) -> Source {
        self.compiler = Some(name);
        self
    }

    pub fn link(mut self, input: &Path) -> Source {
        self.inputs.push(input.to_path_buf());
        self
    }

    /// Adds the folder of `mallard.h` and `jemalloc/jemalloc.h`.
    pub fn with_headers(mut self) -> Source {
        let folder = crate::repository().join("crates/mallard-c");
        self.flags.push(format!("-I{}", folder.display()));
        self
    }

    /// Compiles the program and returns its path.
    ///
    /// # Panics
    /// If the compiler rejects the source; the message is the compiler's.
    pub fn compile(self) -> PathBuf {
        self.try_compile()
            .unwrap_or_else(|message| panic!("{message}"))
    }

    /// Compiles the program and returns its path, or else the compiler's message.
    ///
    /// # Errors
    /// The compiler is missing or rejects the source.
    pub fn try_compile(self) -> Result<PathBuf, String> {
        static COMPILED: OnceLock<Mutex<HashMap<Source, Slot>>> = OnceLock::new();
        let slot = {
            let mut compiled = COMPILED
                .get_or_init(Default::default)
                .lock()
                .expect("no compile panics under the lock");
            Arc::clone(compiled.entry(self.clone()).or_default())
        };
        slot.get_or_init(|| self.invoke()).clone()
    }

    fn invoke(&self) -> Result<PathBuf, String> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let stem = self.file.replace('.', "-");
        let program = output_dir().join(format!("{stem}-{number}"));
        let is_cpp = self.file.ends_with(".cpp");
        let standard = if is_cpp { "-std=c++17" } else { "-std=gnu11" };
        let compiler = match self.compiler {
            Some(name) => PathBuf::from(name),
            None => crate::target().compiler(is_cpp)?,
        };
        let name = compiler.display();
        let output = Command::new(&compiler)
            .args([standard, "-g", "-pthread"])
            // The programs test the functions themselves, so the compiler must not use its
            // knowledge of them or drop a pair whose result is unused.
            .arg("-fno-builtin")
            // Some systems switch this on by default. It ends a program that writes the usable
            // bytes behind the size that it asked for, which is what some of the programs test.
            .arg("-U_FORTIFY_SOURCE")
            .args(&self.flags)
            .arg("-o")
            .arg(&program)
            .arg(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("programs")
                    .join(&self.file),
            )
            .args(&self.inputs)
            .arg("-ldl")
            .env_remove("LD_PRELOAD")
            .output()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        if output.status.success() {
            Ok(program)
        } else {
            Err(format!(
                "{name} refused {}:\n{}",
                self.file,
                String::from_utf8_lossy(&output.stderr)
            ))
        }
    }
}

/// The folder of this test's programs.
fn output_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    let name = test.file_name().expect("a test has a name");
    folder::own(&name.to_string_lossy())
}
