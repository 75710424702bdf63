//! mimalloc 3, as upstream's CMake builds its shared library in release mode; with the feature
//! `secure`, as it does so with `MI_SECURE=ON`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = peer_build::Sources::of("libmimalloc-sys2").path("c_src/mimalloc3");
    let mut build = peer_build::compiler();
    build
        .std("gnu11")
        .include(sources.join("include"))
        .include(sources.join("src"))
        .flag("-fvisibility=hidden")
        .flag("-fno-builtin-malloc")
        .define("MI_SHARED_LIB", None)
        .define("MI_SHARED_LIB_EXPORT", None)
        .define("MI_MALLOC_OVERRIDE", None)
        .define("MI_BUILD_RELEASE", None);
    if std::env::var_os("CARGO_FEATURE_SECURE").is_some() {
        build.define("MI_SECURE", "4");
    }
    // Upstream's file for a build as one translation unit, in which everything can be inlined.
    peer_build::Library::new("mimalloc")
        .files([sources.join("src/static.c")])
        .export_visible()
        .link(&build);
}
