//! How the library is linked: its functions call each other and not an interposer's, it is bound at
//! once (a lazy binding would run the loader inside malloc), every function that it demands exists
//! in the C library that it is linked with, and it stays once it is loaded.

fn main() {
    for arg in [
        "-soname,libmallard_checked.so",
        "-Bsymbolic-functions",
        "-z,nodelete",
        "-z,defs",
        "-z,relro",
        "-z,now",
        "-s",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
