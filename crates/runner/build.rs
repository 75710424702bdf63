//! Compiles the launcher, the small static program that starts every measured process.

use std::env;
use std::path::PathBuf;

fn main() {
    const SOURCE: &str = "src/launcher.c";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("launcher");

    let compiler = cc::Build::new()
        .opt_level(2)
        .debug(false)
        .flag("-std=gnu11")
        .try_get_compiler()
        .unwrap_or_else(|error| panic!("building the lab needs a C compiler: {error}"));
    // A static launcher is the smallest. Without a static C library, a dynamic one is good enough:
    // it is still far smaller than any program worth measuring.
    for linkage in [&["-static", "-no-pie"][..], &[]] {
        let mut command = compiler.to_command();
        command
            .arg(SOURCE)
            .arg("-o")
            .arg(&out)
            .args(linkage)
            .arg("-s");
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        if output.status.success() {
            return;
        }
        if linkage.is_empty() {
            let message = String::from_utf8_lossy(&output.stderr);
            panic!("compiling {SOURCE} failed with {command:?}:\n{message}");
        }
    }
}
