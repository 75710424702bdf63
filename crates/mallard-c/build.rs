//! How libmallard.so is linked: its soname, the order of its code (`layout.ld`), that its functions
//! call each other and not an interposer's of the same name (which calls them in turn), and that it
//! stays once it is loaded (threads that are still running hold pointers into it).

fn main() {
    for arg in [
        "-soname,libmallard.so.0",
        "-Bsymbolic-functions",
        "-z,nodelete",
        "-z,relro",
        "-z,now",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
    // Asked for when it runs: it may have been compiled for another copy of these sources.
    let home = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let layout = format!("{home}/layout.ld");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{layout}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=layout.ld");
}
