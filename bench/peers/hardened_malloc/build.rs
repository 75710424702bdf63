//! hardened_malloc with its C++ operators, as upstream's makefile builds `libhardened_malloc.so`;
//! with the feature `light`, as it builds `libhardened_malloc-light.so`.
//!
//! The crate compiles it without the operators, and with a file of its own instead of `util.c`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = peer_build::Sources::of("hardened-malloc-sys");
    let upstream = sources.path("vendor/hardened-malloc");
    let light = std::env::var_os("CARGO_FEATURE_LIGHT").is_some();
    let options = upstream.join(if light {
        "config/light.mk"
    } else {
        "config/default.mk"
    });

    let mut c = compiler(&upstream, &options);
    // The sources are C23; compilers before gcc 13 have `alignas` in a header only.
    c.std("c2x").flag("-include").flag("stdalign.h");
    let mut cpp = compiler(&upstream, &options);
    cpp.cpp(true).std("c++20").file(upstream.join("new.cc"));
    let files = [
        "chacha.c",
        "h_malloc.c",
        "memory.c",
        "pages.c",
        "random.c",
        "util.c",
    ];
    let mut library = peer_build::Library::new("hardened_malloc");
    library
        .files(files.map(|file| upstream.join(file)))
        .version(&release(&sources.version))
        .export_visible()
        .argument("-O3")
        .argument("-flto");
    for object in cpp.compile_intermediates() {
        library.argument(&object.to_string_lossy());
    }
    library.argument("-lstdc++").link(&c);
}

/// Upstream's flags but for `-march=native`: no peer is built for this processor alone.
fn compiler(upstream: &Path, options: &Path) -> cc::Build {
    let mut build = peer_build::compiler();
    build
        .include(upstream.join("include"))
        .include(upstream.join("third_party"))
        .define("_GNU_SOURCE", None)
        .flag("-flto")
        .flag("-fvisibility=hidden")
        .flag_if_supported("-fstack-clash-protection")
        .flag_if_supported("-fcf-protection")
        .flag("-fstack-protector-strong");
    for (name, value) in defines(options) {
        build.define(&name, value.as_str());
    }
    build
}

/// What the makefile defines for the options of a configuration.
fn defines(options: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(options).expect("a configuration");
    // These choose files and flags; all others are macros.
    let of_the_makefile = [
        "CONFIG_WERROR",
        "CONFIG_NATIVE",
        "CONFIG_CXX_ALLOCATOR",
        "CONFIG_UBSAN",
    ];
    text.lines()
        .filter_map(|line| line.split('#').next()?.split_once(":="))
        .map(|(name, value)| (name.trim(), value.trim()))
        .filter(|(name, _)| !of_the_makefile.contains(name))
        .map(|(name, value)| (macro_name(name).to_owned(), value.to_owned()))
        .collect()
}

/// The makefile takes the prefix off most options.
fn macro_name(option: &str) -> &str {
    let kept = [
        "CONFIG_SEAL_METADATA",
        "CONFIG_EXTENDED_SIZE_CLASSES",
        "CONFIG_LARGE_SIZE_CLASSES",
        "CONFIG_CLASS_REGION_SIZE",
        "CONFIG_STATS",
        "CONFIG_SELF_INIT",
        "CONFIG_LABEL_MEMORY",
    ];
    match option.strip_prefix("CONFIG_") {
        Some(short) if !kept.contains(&option) => short,
        _ => option,
    }
}

/// The crate's version is upstream's release with a day and a number: `16.0.2026071503`.
fn release(version: &str) -> String {
    let mut parts = version.split('.');
    let release = parts.next().unwrap_or(version);
    match parts.nth(1) {
        Some(day) if day.len() >= 8 => {
            format!("{release} of {}-{}-{}", &day[..4], &day[4..6], &day[6..8])
        }
        _ => release.to_owned(),
    }
}
