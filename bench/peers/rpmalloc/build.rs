//! rpmalloc, as upstream builds `librpmallocwrap.so` in release mode.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = peer_build::Sources::of("rpmalloc-sys");
    let mut build = peer_build::compiler();
    build
        .std("gnu11")
        .flag("-fstrict-aliasing")
        .flag("-funroll-loops")
        .flag("-ffast-math")
        .define("_GNU_SOURCE", "1")
        .define("BUILD_DYNAMIC_LINK", "1")
        .define("BUILD_RELEASE", "1")
        .define("ENABLE_PRELOAD", "1")
        .define("ENABLE_OVERRIDE", "1");
    // The newest release in its change log, and the commit that the crate contains.
    let log = std::fs::read_to_string(sources.path("rpmalloc/CHANGELOG")).expect("a change log");
    let release = log.lines().next().expect("a first line").trim();
    let commit = sources
        .version
        .split_once('+')
        .map_or("", |(_, commit)| commit);
    peer_build::Library::new("rpmalloc")
        .files([sources.path("rpmalloc/rpmalloc/rpmalloc.c")])
        .version(&format!("{release}+{commit}"))
        .link(&build);
}
