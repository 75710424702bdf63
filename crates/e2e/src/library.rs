//! The library under test. Each test process asks cargo for it once per profile. If it is up to
//! date, cargo answers in a fraction of a second, and its lock on the target folder serialises
//! concurrent test processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// One build of the library.
#[derive(Debug, Clone)]
pub struct Library {
    /// The name in test output: `release`, `debug`, or the file name of a given library.
    pub name: String,
    /// The canonical path of the shared library, as it appears in a process's map.
    pub shared: PathBuf,
    /// The static library; absent for a library given by `MALLARD_LIBRARY`.
    archive: Option<PathBuf>,
}

/// The source of a run's `malloc`.
#[derive(Debug, Clone, Copy)]
pub enum Allocator<'a> {
    /// The program's own choice, usually glibc.
    System,
    /// The library, preloaded.
    Preload(&'a Library),
    /// The library under jemalloc's name, for programs that are linked with jemalloc.
    InPlaceOfJemalloc(&'a Library),
}

impl Allocator<'_> {
    pub fn name(&self) -> &str {
        match self {
            Allocator::System => "system",
            Allocator::Preload(library) | Allocator::InPlaceOfJemalloc(library) => &library.name,
        }
    }

    /// The library that must serve a program.
    pub fn library(&self) -> Option<&Library> {
        match self {
            Allocator::System => None,
            Allocator::Preload(library) | Allocator::InPlaceOfJemalloc(library) => Some(library),
        }
    }

    /// The value of `LD_PRELOAD` for it, followed by the other objects to preload.
    pub fn preload(&self, others: &[&Path]) -> OsString {
        let own = match self {
            Allocator::System | Allocator::InPlaceOfJemalloc(_) => None,
            Allocator::Preload(library) => Some(library.shared.as_path()),
        };
        let mut value = OsString::new();
        for path in own.iter().chain(others) {
            if !value.is_empty() {
                value.push(":");
            }
            value.push(path);
        }
        value
    }
}

impl Library {
    /// The builds on which every test runs: the one users get and the one with all internal checks.
    pub fn under_test() -> &'static [Library] {
        static BUILDS: OnceLock<Vec<Library>> = OnceLock::new();
        BUILDS.get_or_init(|| match std::env::var_os("MALLARD_LIBRARY") {
            Some(path) => vec![given(Path::new(&path))],
            None => vec![build("release"), build("debug")],
        })
    }

    /// A debug build with these options compiled in.
    pub fn with_options(options: &str) -> Library {
        build_in("debug", "mallard-c-options", Some(options))
    }

    /// The build that users get. Budgets apply to this one.
    pub fn release() -> &'static Library {
        &Library::under_test()[0]
    }

    /// Whether the library was built here, so that Mallard's own features can be tested.
    pub fn is_mallard(&self) -> bool {
        self.archive.is_some()
    }

    /// Like [`Library::is_mallard`]; says that the test is skipped if it is another library.
    pub fn is_mallard_or_skipped(&self) -> bool {
        if !self.is_mallard() {
            mallard_testing::skipped(
                "about Mallard itself, and MALLARD_LIBRARY names another library",
            );
        }
        self.is_mallard()
    }

    /// The folder with the library under its soname.
    pub fn folder(&self) -> Option<&Path> {
        self.shared.parent()
    }

    /// The static library of this build.
    pub fn archive(&self) -> &Path {
        self.archive
            .as_deref()
            .expect("MALLARD_LIBRARY gives no static library; unset it for this test")
    }
}

fn given(path: &Path) -> Library {
    let shared = path
        .canonicalize()
        .unwrap_or_else(|error| panic!("MALLARD_LIBRARY={}: {error}", path.display()));
    let name = shared
        .file_name()
        .expect("a file has a name")
        .to_string_lossy()
        .into_owned();
    Library {
        name,
        shared,
        archive: None,
    }
}

fn build(profile: &str) -> Library {
    build_in(profile, "mallard-c", None)
}

/// A build in a folder of its own in the target folder, with options compiled in.
fn build_in(profile: &str, folder: &str, options: Option<&str>) -> Library {
    let target = crate::target_dir().join(folder);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .arg("build")
        .arg("--quiet")
        .arg("--manifest-path")
        .arg(crate::repository().join("crates/mallard-c/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("LD_PRELOAD");
    if profile == "release" {
        cargo.arg("--release");
    }
    if let Some(options) = options {
        cargo.env("MALLARD_BUILD_CONF", options);
    }
    let own = crate::target().prepare(&mut cargo);
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cannot start cargo: {error}"));
    assert!(
        output.status.success(),
        "the {profile} build of crates/mallard-c failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let folder = target.join(own).join(profile);
    let file = |name: &str| {
        let path = folder.join(name);
        path.canonicalize()
            .unwrap_or_else(|error| panic!("cargo built no {}: {error}", path.display()))
    };
    let shared = file("libmallard.so");
    let soname = folder.join("libmallard.so.0");
    match std::os::unix::fs::symlink("libmallard.so", &soname) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            panic!("cannot make {}: {error}", soname.display())
        }
        _ => {}
    }
    Library {
        name: profile.to_owned(),
        shared,
        archive: Some(file("libmallard.a")),
    }
}
