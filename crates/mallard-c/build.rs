//! How libmallard.so is linked: its soname, the order of its code (`layout.ld`), and that it stays once it is loaded (threads that are
//! still running hold pointers into it).

fn main() {
    for arg in [
        "-soname,libmallard.so.0",
        "-z,nodelete",
        "-z,relro",
        "-z,now",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
    let layout = format!("{}/layout.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{layout}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=layout.ld");
}
