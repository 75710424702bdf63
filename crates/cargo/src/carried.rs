//! What the build scripts of the lab's crates build for them: the libraries that the lab carries.

use std::env;
use std::path::{Path, PathBuf};

use super::command;

/// What cargo reads of a package.
const PARTS: [&str; 6] = [
    "src",
    "Cargo.toml",
    "build.rs",
    "layout.ld.in",
    "layout.rs",
    "layout.txt",
];

/// Builds the library `file` of a package in `crates/FOLDER`, for a build script; it is built
/// again when the package or one of `used` has changed. The library is that of a release whatever
/// the lab's profile, because the lab measures it. It needs a cargo of its own, because it belongs
/// to another workspace, which is `no_std` with `panic = "abort"`.
///
/// # Panics
/// The library cannot be built. A build script has no other way to fail.
pub fn library(folder: &str, used: &[&str], file: &str) -> PathBuf {
    let variable = |name: &str| env::var_os(name).expect("cargo sets it for build scripts");
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = own.parent().expect("the crate lies in crates/");
    let target = variable("TARGET");
    let target_folder = PathBuf::from(variable("OUT_DIR")).join(folder);
    for package in used.iter().chain([&folder]) {
        for path in PARTS.map(|part| crates.join(package).join(part)) {
            if path.exists() {
                watch(&path);
            }
        }
    }
    for path in ["Cargo.toml", "Cargo.lock", "../Cargo.toml"] {
        watch(&crates.join(path));
    }
    let manifest = crates.join(folder).join("Cargo.toml");
    let mut cargo = command();
    cargo.args(["build", "--release", "--manifest-path"]);
    cargo.arg(&manifest).arg("--target").arg(&target);
    cargo.arg("--target-dir").arg(&target_folder);
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cannot run {cargo:?}: {error}"));
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        panic!("building {} failed:\n{message}", manifest.display());
    }
    let library = target_folder.join(target).join("release").join(file);
    assert!(
        library.exists(),
        "{} is missing although cargo succeeded",
        library.display()
    );
    library
}

/// Has cargo run the build script again when a file or a folder has changed.
pub fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
