//! jemalloc: upstream's own `libjemalloc.so.2`, built by its configure script and makefile with
//! their defaults. The crate would build it without the C++ operators and without statistics.

use std::fs;
use std::process::Command;

use peer_build::{Sources, copy_folder, out_dir, run, variable};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = Sources::of("tikv-jemalloc-sys");
    let version = sources
        .version
        .split_once('+')
        .expect("the crate's version names jemalloc's")
        .1;
    let build = out_dir().join("build");
    if build.exists() {
        fs::remove_dir_all(&build).expect("the output folder is writable");
    }
    copy_folder(&sources.path("jemalloc"), &build).expect("the sources can be copied");
    // The released tarball has this file; the crate keeps it beside the sources.
    fs::copy(sources.path("configure/configure"), build.join("configure"))
        .expect("the configure script can be copied");

    run(Command::new("sh")
        .arg("configure")
        .arg(format!("--with-version={version}"))
        .arg("--disable-doc")
        .arg("--disable-static")
        .current_dir(&build));
    run(Command::new("make")
        .arg("-j")
        .arg(variable("NUM_JOBS"))
        .arg("build_lib_shared")
        .current_dir(&build));
    fs::copy(
        build.join("lib/libjemalloc.so.2"),
        out_dir().join("libjemalloc.so"),
    )
    .expect("make has built the library");
    let _ = fs::remove_dir_all(build);
}
