//! What the build scripts of the lab's crates build for them: the libraries that the lab carries.
//!
//! Their sources belong to other workspaces, and the lab is also built from its package alone. So
//! this crate has them, too: `sources` has links to them in a checkout, and the files themselves in
//! a package, because cargo follows links when it makes one. Manifests and the lock file have other
//! names there, because cargo leaves packages inside a package out.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::command;

/// The repository as far as the libraries need it.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sources");
/// Where the files above the packages lie in the repository; all packages lie in `crates`.
const PLACES: [[&str; 2]; 3] = [
    ["repository.toml", "Cargo.toml"],
    ["workspace.toml", "crates/Cargo.toml"],
    ["workspace.lock", "crates/Cargo.lock"],
];
const MANIFEST: &str = "package.toml";

/// Builds the library `file` of a package in `crates/FOLDER`, for a build script; it is built
/// again when the package or one of `used` has changed. The library is that of a release whatever
/// the lab's profile, because the lab measures it. It needs a cargo of its own, because it belongs
/// to another workspace, which is `no_std` with `panic = "abort"`.
///
/// # Panics
/// The library cannot be built. A build script has no other way to fail.
pub fn library(folder: &str, used: &[&str], file: &str) -> PathBuf {
    let variable = |name: &str| env::var_os(name).expect("cargo sets it for build scripts");
    let target = variable("TARGET");
    let out = PathBuf::from(variable("OUT_DIR"));
    let (copy, target_folder) = (out.join("sources"), out.join(folder));
    let sources = Path::new(SOURCES);
    lay_out(sources, &copy)
        .unwrap_or_else(|error| panic!("cannot copy {SOURCES} to {}: {error}", copy.display()));
    let shared = PLACES.iter().map(|[file, _]| file);
    for name in used.iter().chain([&folder]).chain(shared) {
        watch(&sources.join(name));
    }
    let mut cargo = command();
    cargo.args(["build", "--release", "--manifest-path"]);
    cargo.arg(copy.join("crates").join(folder).join("Cargo.toml"));
    cargo.arg("--target").arg(&target);
    cargo.arg("--target-dir").arg(&target_folder);
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cannot run {cargo:?}: {error}"));
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        panic!("building {folder} of {SOURCES} failed:\n{message}");
    }
    let library = target_folder.join(target).join("release").join(file);
    assert!(
        library.exists(),
        "{} is missing although cargo succeeded",
        library.display()
    );
    library
}

/// Copies the sources to where they lie in the repository.
fn lay_out(sources: &Path, copy: &Path) -> io::Result<()> {
    fs::create_dir_all(copy.join("crates"))?;
    for entry in fs::read_dir(sources)? {
        let entry = entry?;
        let name = entry.file_name();
        let place = PLACES.into_iter().find(|[file, _]| name == *file);
        match place {
            Some([_, place]) => copy_all(&entry.path(), &copy.join(place))?,
            None => copy_all(&entry.path(), &copy.join("crates").join(name))?,
        }
    }
    Ok(())
}

/// Copies a file, or all files of a folder. A file that is the same stays as it is, so that cargo
/// builds again only what has changed.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let content = fs::read(from)?;
        if fs::read(to).is_ok_and(|old| old == content) {
            return Ok(());
        }
        return fs::write(to, content);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        let place = if name == MANIFEST {
            to.join("Cargo.toml")
        } else {
            to.join(&name)
        };
        copy_all(&from.join(&name), &place)?;
    }
    Ok(())
}

/// Has cargo run the build script again when a file or a folder has changed.
pub fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
