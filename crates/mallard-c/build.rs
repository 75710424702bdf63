//! How libmallard.so is linked: its soname, and that it stays once it is loaded (threads that are
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
    println!("cargo:rerun-if-changed=build.rs");
}
