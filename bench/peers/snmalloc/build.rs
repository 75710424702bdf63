//! snmalloc, as upstream's CMake builds `libsnmallocshim.so` in release mode; with the feature
//! `checked`, as it builds `libsnmallocshim-checks.so`, which also has a `memcpy` that checks.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = peer_build::Sources::of("snmalloc-sys");
    let upstream = sources.path("upstream/src");
    let mut build = peer_build::compiler();
    build
        .cpp(true)
        .std("c++20")
        .include(&upstream)
        .flag("-fvisibility=hidden")
        .flag("-fomit-frame-pointer")
        .flag("-ffunction-sections")
        .flag_if_supported("-mprfchw")
        .flag_if_supported("-mcx16")
        .define(
            "SNMALLOC_EXPORT",
            "__attribute__((visibility(\"default\")))",
        )
        .define("SNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT", None)
        .define("SNMALLOC_USE_WAIT_ON_ADDRESS", "1")
        .define("SNMALLOC_PLATFORM_HAS_GETENTROPY", None)
        .define("SNMALLOC_PTHREAD_ATFORK_WORKS", None)
        .define("SNMALLOC_HAS_LINUX_RANDOM_H", None)
        .define("SNMALLOC_HAS_LINUX_FUTEX_H", None)
        .define("SNMALLOC_NO_REALLOCARR", None)
        .define("SNMALLOC_CHECK_LOADS", "false")
        .define("SNMALLOC_PAGEID", "false");
    let mut files = vec!["malloc.cc", "new.cc"];
    if std::env::var_os("CARGO_FEATURE_CHECKED").is_some() {
        build.define("SNMALLOC_CHECK_CLIENT", None);
        files.push("memcpy.cc");
    }
    let files = files.into_iter();
    peer_build::Library::new("snmalloc")
        .files(files.map(|file| upstream.join("snmalloc/override").join(file)))
        .version(&sources.version)
        .export_visible()
        .argument("-static-libstdc++")
        .argument("-latomic")
        .link(&build);
}
