//! Builds the probe, which this crate embeds. It needs a cargo of its own, like libmallard.so: it
//! belongs to the workspace that is `no_std` with `panic = "abort"`.

use std::env;
use std::path::{Path, PathBuf};

#[path = "../allocators/src/builds/cargo.rs"]
mod cargo;

fn main() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in crates/");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for file in [
        "probe/src",
        "probe/Cargo.toml",
        "probe/build.rs",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", crates.join(file).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::rerun-if-changed={}",
        crates.join("allocators/src/builds/cargo.rs").display()
    );

    let target = env::var("TARGET").expect("cargo sets TARGET");
    let target_folder = out.join("probe");
    let manifest = crates.join("probe/Cargo.toml");
    let mut command = cargo::command();
    command.args(["build", "--release", "--target", &target, "--manifest-path"]);
    command
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target_folder);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        panic!("building {} failed:\n{message}", manifest.display());
    }
    let library = target_folder
        .join(target)
        .join("release/libmallard_probe.so");
    println!(
        "cargo::rustc-env=MALLARD_CARRIED_PROBE_LIBRARY={}",
        library.display()
    );
}
