//! The code that the build scripts of the peers share.
//!
//! Each peer comes from a crate that contains its C or C++ sources. Such a crate builds a static
//! library for Rust programs, with other flags and other symbols than upstream's library for
//! preloading; measuring that would be unfair to the peer. So a peer's build script finds the
//! crate's sources ([`Sources::of`]), compiles them with upstream's own flags for its shared
//! library and links that library itself: rustc's `cdylib` would hide every C symbol.
//!
//! The result is `lib<name>.so` in the script's output folder, where the lab finds it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The allocation functions and operators that a preloaded library must provide, as patterns of a
/// linker's version script: the C family, and `operator new` and `operator delete` in all forms
/// (`_Znw`, `_Zna`, `_Zdl`, `_Zda`). The lab calls `mallard_peer_*` for the version.
const EXPORTS: &str = "malloc; calloc; realloc; reallocarray; free; free_sized; \
    free_aligned_sized; cfree; posix_memalign; aligned_alloc; memalign; valloc; pvalloc; \
    malloc_usable_size; malloc_trim; mallinfo; mallinfo2; mallopt; malloc_stats; \
    _Znw*; _Zna*; _Zdl*; _Zda*; mallard_peer_*;";

/// The sources of a crate, in the version that the lock file pins.
pub struct Sources {
    /// The crate's root folder.
    pub root: PathBuf,
    /// The crate's version, including the part after its `+`.
    pub version: String,
}

impl Sources {
    /// Finds the sources of the dependency `package`. Panics with a sentence, as build scripts do.
    pub fn of(package: &str) -> Sources {
        let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let output = Command::new(variable("CARGO"))
            .args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--all-features",
            ])
            .arg("--manifest-path")
            .arg(&manifest)
            .output()
            .unwrap_or_else(|error| panic!("cannot run `cargo metadata`: {error}"));
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            panic!(
                "`cargo metadata` on {} failed:\n{message}",
                manifest.display()
            );
        }
        let metadata: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("`cargo metadata` prints JSON");
        let packages = metadata["packages"]
            .as_array()
            .expect("the metadata lists packages");
        let found = packages
            .iter()
            .find(|candidate| candidate["name"] == package)
            .unwrap_or_else(|| panic!("{package} is not a dependency of {}", manifest.display()));
        let text = |key: &str| {
            found[key]
                .as_str()
                .expect("a package has this key")
                .to_owned()
        };
        let manifest_path = PathBuf::from(text("manifest_path"));
        Sources {
            root: manifest_path
                .parent()
                .expect("a manifest lies in a folder")
                .to_owned(),
            version: text("version"),
        }
    }

    /// A file or folder of the sources; panics if it does not exist.
    pub fn path(&self, relative: &str) -> PathBuf {
        let path = self.root.join(relative);
        assert!(
            path.exists(),
            "{} is missing: has the crate changed?",
            path.display()
        );
        path
    }
}

/// The output folder of the running build script.
pub fn out_dir() -> PathBuf {
    PathBuf::from(variable("OUT_DIR"))
}

/// An environment variable that cargo sets for every build script.
pub fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this with cargo"))
}

/// A compiler configured as every peer needs it: optimisation, position-independent code, no
/// assertions, thread locals in the initial-exec model (as in all upstream preload libraries), and
/// no warnings, because the code is upstream's.
pub fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build
        .opt_level(3)
        .pic(true)
        .warnings(false)
        .cargo_metadata(false)
        .define("NDEBUG", None)
        .flag("-ftls-model=initial-exec")
        .flag_if_supported("-fno-plt");
    build
}

/// A library to link.
pub struct Library {
    name: String,
    files: Vec<PathBuf>,
    version: Option<String>,
    arguments: Vec<String>,
    further_exports: String,
    symbols_chosen: bool,
}

impl Library {
    pub fn new(name: &str) -> Library {
        Library {
            name: name.to_owned(),
            files: Vec::new(),
            version: None,
            arguments: Vec::new(),
            further_exports: String::new(),
            symbols_chosen: true,
        }
    }

    /// The sources to compile.
    pub fn files(&mut self, files: impl IntoIterator<Item = PathBuf>) -> &mut Library {
        self.files.extend(files);
        self
    }

    /// Adds `mallard_peer_version()` to the library, for peers that cannot report their version.
    pub fn version(&mut self, version: &str) -> &mut Library {
        self.version = Some(version.to_owned());
        self
    }

    /// An additional argument for the linking compiler.
    pub fn argument(&mut self, argument: &str) -> &mut Library {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Additional symbols to export, in the syntax of a version script: `mi_*;`.
    pub fn export(&mut self, patterns: &str) -> &mut Library {
        self.further_exports.push_str(patterns);
        self
    }

    /// Exports everything that the sources mark as visible, for peers whose marks are right.
    pub fn export_visible(&mut self) -> &mut Library {
        self.symbols_chosen = false;
        self
    }

    /// Compiles the sources with the flags of `build` and links them into `lib<name>.so`.
    pub fn link(&self, build: &cc::Build) {
        let mut objects = self.compile(build);
        if let Some(version) = &self.version {
            objects.extend(compile_version(version));
        }
        let library = out_dir().join(format!("lib{}.so", self.name));
        let mut command = build.get_compiler().to_command();
        command
            .arg("-shared")
            .arg("-o")
            .arg(&library)
            .args(&objects)
            .args([
                "-Wl,-O1",
                "-Wl,-Bsymbolic",
                "-Wl,--no-undefined",
                "-Wl,--as-needed",
                "-Wl,-z,now",
            ]);
        if self.symbols_chosen {
            let script = out_dir().join("exports.map");
            let text = format!(
                "{{ global: {EXPORTS} {} local: *; }};\n",
                self.further_exports
            );
            fs::write(&script, text).expect("the output folder is writable");
            command.arg(format!("-Wl,--version-script={}", script.display()));
        }
        command.args(&self.arguments).args(["-lpthread", "-ldl"]);
        run(&mut command);
    }

    /// Compiles a few files at a time and reports the progress after each batch: cargo shows a
    /// build script's standard error while it runs (`-vv`), and one of the peers has 170 files.
    fn compile(&self, build: &cc::Build) -> Vec<PathBuf> {
        let at_once = 4 * variable("NUM_JOBS").parse().unwrap_or(1);
        let mut objects = Vec::new();
        for files in self.files.chunks(at_once) {
            objects.extend(build.clone().files(files).compile_intermediates());
            eprintln!("compiled {} of {} files", objects.len(), self.files.len());
        }
        objects
    }
}

/// Compiles a function that returns the version.
fn compile_version(version: &str) -> Vec<PathBuf> {
    let file = out_dir().join("version.c");
    let text = format!(
        "__attribute__((visibility(\"default\"))) const char *mallard_peer_version(void) {{ \
         return \"{version}\"; }}\n"
    );
    fs::write(&file, text).expect("the output folder is writable");
    cc::Build::new()
        .cargo_metadata(false)
        .pic(true)
        .file(file)
        .compile_intermediates()
}

/// Runs a command of the build and shows its output while it runs. If the command fails, panics
/// with the command line.
pub fn run(command: &mut Command) {
    println!("running {command:?}");
    match command.stdout(std::io::stderr()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} failed: {status}"),
        Err(error) => panic!("cannot run {command:?}: {error}"),
    }
}

/// Copies a folder with everything in it.
pub fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
