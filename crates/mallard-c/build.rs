//! How libmallard.so is linked: its soname, the order of its code (`layout.ld.in`, with the names
//! of `layout.txt`), that its functions call each other and not an interposer's of the same name
//! (which calls them in turn), and that it stays once it is loaded (threads that are still running
//! hold pointers into it).

mod layout;

use std::fs;
use std::path::Path;

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
    let variable = |name| std::env::var(name).expect("cargo says where things are");
    let (home, out) = (variable("CARGO_MANIFEST_DIR"), variable("OUT_DIR"));
    let read = |name| fs::read_to_string(Path::new(&home).join(name)).expect("a file of the crate");
    let script = Path::new(&out).join("layout.ld");
    let filled = fill(&read("layout.ld.in"), &layout::names(&read("layout.txt")));
    fs::write(&script, filled).expect("cargo's folder can be written to");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{}", script.display());
    for file in ["build.rs", "layout.rs", "layout.ld.in", "layout.txt"] {
        println!("cargo:rerun-if-changed={file}");
    }
}

/// Replaces each line `@KIND GROUP@` by the sections of that kind that the group's names have.
fn fill(template: &str, names: &[layout::Name]) -> String {
    let mut filled = String::new();
    for line in template.lines() {
        let place = line.trim().strip_prefix('@');
        let Some(place) = place.and_then(|place| place.strip_suffix('@')) else {
            filled += line;
            filled.push('\n');
            continue;
        };
        let (kind, group) = place.split_once(' ').expect("@KIND GROUP@");
        let members: Vec<_> = names.iter().filter(|name| name.group == group).collect();
        assert!(!members.is_empty(), "layout.txt has no group {group}");
        for name in members {
            let patterns = name.patterns();
            let sections: Vec<_> = patterns.iter().map(|p| format!(".{kind}.{p}")).collect();
            filled += &format!("    *({})\n", sections.join(" "));
        }
    }
    filled
}
