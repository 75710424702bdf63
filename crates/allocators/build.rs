//! Builds the files that this crate embeds: the probe program, `libmallard.so` and
//! `libmallard_checked.so`.

use std::env;
use std::path::{Path, PathBuf};

use mallard_cargo::carried;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::rustc-env=MALLARD_CARRIED_LIBRARY={}",
        mallard().display()
    );
    println!(
        "cargo::rustc-env=MALLARD_CARRIED_CHECKED={}",
        carried::library("checked", &["probe"], "libmallard_checked.so").display()
    );
    println!(
        "cargo::rustc-env=MALLARD_CARRIED_PROBE={}",
        probe(&out).display()
    );
}

/// The C library. If `MALLARD_PREBUILT` names one, embeds that.
fn mallard() -> PathBuf {
    println!("cargo::rerun-if-env-changed=MALLARD_PREBUILT");
    let Some(prebuilt) = env::var_os("MALLARD_PREBUILT").map(PathBuf::from) else {
        return carried::library("mallard-c", &["core", "formats", "http"], "libmallard.so");
    };
    carried::watch(&prebuilt);
    assert!(
        prebuilt.is_file(),
        "MALLARD_PREBUILT: there is no file {}",
        prebuilt.display()
    );
    prebuilt.canonicalize().expect("a file has a path")
}

fn probe(out: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("probe/probe.c");
    carried::watch(&source);
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
