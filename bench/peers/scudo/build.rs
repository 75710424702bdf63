//! scudo, as upstream's CMake builds `libclang_rt.scudo_standalone-ARCH.so` in release mode, but
//! without GWP-ASan, which is another part of LLVM. The crate compiles it without `malloc`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = peer_build::Sources::of("scudo-sys");
    let upstream = sources.path("scudo-standalone");
    let mut build = peer_build::compiler();
    build
        .cpp(true)
        .std("c++17")
        .include(&upstream)
        .include(upstream.join("include"))
        .flag("-fvisibility=hidden")
        .flag("-fno-exceptions")
        .flag("-fno-rtti")
        .flag("-ffunction-sections")
        .flag("-fdata-sections");
    let files = [
        "checksum.cpp",
        "common.cpp",
        "flags_parser.cpp",
        "flags.cpp",
        "fuchsia.cpp",
        "linux.cpp",
        "release.cpp",
        "report.cpp",
        "string_utils.cpp",
        "wrappers_c.cpp",
        "wrappers_cpp.cpp",
    ];
    peer_build::Library::new("scudo")
        .files(files.map(|file| upstream.join(file)))
        .files([with_checksums(&upstream)])
        .version(&sources.version)
        .argument("-Wl,--gc-sections")
        .link(&build);
}

/// The file that computes checksums by the processor's instruction. It alone is compiled for
/// processors that have it; the library asks at run time.
fn with_checksums(upstream: &Path) -> std::path::PathBuf {
    let target = match peer_build::variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "sse4.2",
        _ => "+crc",
    };
    let file = peer_build::out_dir().join("with_checksums.cpp");
    let text = format!(
        "#pragma GCC target(\"{target}\")\n#include \"{}\"\n",
        upstream.join("crc32_hw.cpp").display()
    );
    std::fs::write(&file, text).expect("the output folder is writable");
    file
}
