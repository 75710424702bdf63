//! google/tcmalloc, which upstream builds only for static linking: all of its translation units in
//! one library, with `malloc` and the operators as the aliases that upstream defines.
//!
//! The crate compiles the same files with `TCMALLOC_INTERNAL_METHODS_ONLY`, which removes these
//! aliases, so this script takes only the list of files from the crate.

use peer_build::{Library, Sources};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = Sources::of("libtcmalloc-sys");
    let mut build = peer_build::compiler();
    build
        .cpp(true)
        .std("c++17")
        // As in Bazel's `-c opt`, with which upstream measures.
        .opt_level(2)
        .include(sources.path("c_src/abseil-cpp"))
        .include(sources.path("c_src/tcmalloc"))
        .define("TCMALLOC_INTERNAL_8K_PAGES", None)
        .flag("-fno-omit-frame-pointer")
        .flag("-w");
    Library::new("tcmalloc")
        .files(files(&sources))
        .files([sources.path("c_src/tcmalloc/tcmalloc/tcmalloc.cc")])
        .version(&version(&sources))
        .export("MallocExtension_Internal_GetPerCpuCachesActive;")
        .argument("-static-libstdc++")
        .link(&build);
}

/// The files named in the crate's build script, without its bridges to Rust.
fn files(sources: &Sources) -> Vec<std::path::PathBuf> {
    let script = std::fs::read_to_string(sources.path("build.rs")).expect("a build script");
    let files: Vec<_> = script
        .split('"')
        .filter(|literal| literal.ends_with(".cc") || literal.ends_with(".S"))
        .filter(|literal| !literal.contains("bridge"))
        .map(|literal| sources.path(literal))
        .collect();
    assert!(
        files.len() > 100,
        "the crate's build script names only {} files",
        files.len()
    );
    files
}

/// The crate's version and its date from the change log, because tcmalloc has no releases.
fn version(sources: &Sources) -> String {
    let log = std::fs::read_to_string(sources.path("CHANGELOG.md")).unwrap_or_default();
    let heading = format!("## [{}]", sources.version);
    let day = log
        .lines()
        .find(|line| line.starts_with(&heading))
        .and_then(|line| line.rsplit(" - ").next())
        .map(|day| format!("{day}, "));
    format!(
        "{}libtcmalloc-sys {}",
        day.unwrap_or_default(),
        sources.version
    )
}
