//! Builds the files that this crate embeds: the probe program and `libmallard.so`. The library
//! needs a separate cargo because it is a workspace of its own (`no_std`, `panic = "abort"`).

use std::env;
use std::path::{Path, PathBuf};

#[path = "src/builds/cargo.rs"]
mod cargo;

fn main() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in crates/");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/builds/cargo.rs");

    let library = mallard(crates, &out);
    println!(
        "cargo::rustc-env=MALLARD_CARRIED_LIBRARY={}",
        library.display()
    );
    let probe = probe(&out);
    println!("cargo::rustc-env=MALLARD_CARRIED_PROBE={}", probe.display());
}

/// Builds the C library in release mode whatever the lab's profile, because the lab measures it.
///
/// If `MALLARD_PREBUILT` names a library, embeds that one instead.
fn mallard(crates: &Path, out: &Path) -> PathBuf {
    println!("cargo::rerun-if-env-changed=MALLARD_PREBUILT");
    if let Some(prebuilt) = env::var_os("MALLARD_PREBUILT").map(PathBuf::from) {
        println!("cargo::rerun-if-changed={}", prebuilt.display());
        assert!(
            prebuilt.is_file(),
            "MALLARD_PREBUILT: there is no file {}",
            prebuilt.display()
        );
        return prebuilt.canonicalize().expect("a file has a path");
    }
    for part in [
        "src",
        "Cargo.toml",
        "build.rs",
        "layout.ld.in",
        "layout.txt",
    ] {
        for package in ["core", "http", "mallard-c"] {
            let path = crates.join(package).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let repository = crates.parent().expect("crates/ lies in the repository");
    for of_workspace in [
        crates.join("Cargo.toml"),
        crates.join("Cargo.lock"),
        repository.join("Cargo.toml"),
    ] {
        println!("cargo::rerun-if-changed={}", of_workspace.display());
    }

    let manifest = crates.join("mallard-c/Cargo.toml");
    let target_folder = out.join("mallard-c");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let mut command = cargo::command();
    command
        .args(["build", "--release", "--manifest-path"])
        .arg(&manifest);
    command
        .arg("--target-dir")
        .arg(&target_folder)
        .args(["--target", &target]);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        panic!("building {} failed:\n{message}", manifest.display());
    }
    let library = target_folder.join(target).join("release/libmallard.so");
    assert!(
        library.exists(),
        "{} is missing although cargo succeeded",
        library.display()
    );
    library
}

fn probe(out: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("probe/probe.c");
    println!("cargo::rerun-if-changed={}", source.display());
    let program = out.join("probe");
    let compiler = cc::Build::new()
        .warnings(true)
        .opt_level(1)
        .debug(false)
        .get_compiler();
    let mut command = compiler.to_command();
    // `-fno-builtin` keeps the compiler from deleting allocations whose memory is unused.
    command
        .args(["-std=gnu11", "-fno-builtin", "-pthread", "-s", "-o"])
        .arg(&program)
        .arg(&source);
    command.args(["-ldl"]);
    match command.status() {
        Ok(status) if status.success() => program,
        Ok(status) => panic!("{command:?} failed: {status}"),
        Err(error) => panic!("cannot run {command:?}: {error}; is a C compiler installed?"),
    }
}
