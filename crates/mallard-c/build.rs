//! How libmallard.so is linked: its soname, the order of its code (`layout.ld.in`, with the names
//! of `layout.txt`), that its functions call each other and not an interposer's of the same name
//! (which calls them in turn), that every function it demands exists in the C library that it is
//! linked with, and that it stays once it is loaded (threads that are still running hold pointers
//! into it).

mod layout;

use std::fs;
use std::path::Path;

/// Functions that processes of older C libraries need not have (src/older.rs).
const WRAPPED: [&str; 6] = [
    "pthread_key_create",
    "pthread_setspecific",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_join",
    "dlsym",
];

fn main() {
    // Asked for when it runs: it may have been compiled for another copy of these sources.
    let variable = |name| std::env::var(name).expect("cargo says where things are");
    for arg in [
        "-soname,libmallard.so.0",
        "-Bsymbolic-functions",
        "-z,nodelete",
        "-z,relro",
        "-z,now",
        // The default on x86-64 alone.
        "-z,separate-code",
        "-z,defs",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
    let is_glibc = variable("CARGO_CFG_TARGET_ENV") != "musl";
    if is_glibc {
        for function in WRAPPED {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={function}");
            let ours = format!("__wrap_{function}=mallard_{function}");
            println!("cargo:rustc-cdylib-link-arg=-Wl,--defsym={ours}");
        }
    } else {
        // For glibc the crate `libc` asks for it. The library names its C library, so that the
        // loader of another one refuses it.
        let arg = "-Wl,--push-state,--no-as-needed,-lc,--pop-state";
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    let (home, out) = (variable("CARGO_MANIFEST_DIR"), variable("OUT_DIR"));
    let read = |name| fs::read_to_string(Path::new(&home).join(name)).expect("a file of the crate");
    let script = Path::new(&out).join("layout.ld");
    let (template, list) = (read("layout.ld.in"), read("layout.txt"));
    let filled = fill(&template, &layout::names(&list), is_glibc);
    fs::write(&script, filled).expect("cargo's folder can be written to");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{}", script.display());
    for file in ["build.rs", "layout.rs", "layout.ld.in", "layout.txt"] {
        println!("cargo:rerun-if-changed={file}");
    }
}

/// Leaves `@glibc STATEMENT@` out for another C library, and replaces each `@KIND GROUP@` by the
/// sections of that kind that the group's names have. On a line of its own it becomes a statement
/// for each name, so that the sections lie in the order of the list. Inside a statement it becomes
/// patterns of that statement, whose sections lie in the order in which the linker finds them.
fn fill(template: &str, names: &[layout::Name], is_glibc: bool) -> String {
    let mut filled = String::new();
    for line in template.lines() {
        let parts: Vec<_> = line.split('@').collect();
        match parts[..] {
            ["", place, ""] if place.starts_with("glibc ") => {
                if is_glibc {
                    filled += &format!("{}\n", &place["glibc ".len()..]);
                }
            }
            [before, place, ""] if before.trim().is_empty() => {
                for sections in sections(place, names) {
                    filled += &format!("{before}*({sections})\n");
                }
            }
            [before, place, after] => {
                let sections = sections(place, names).join(" ");
                filled += &format!("{before}{sections}{after}\n");
            }
            _ => {
                filled += line;
                filled.push('\n');
            }
        }
    }
    filled
}

/// The patterns of the sections that stand for `KIND GROUP`, by the names of the group.
fn sections(place: &str, names: &[layout::Name]) -> Vec<String> {
    let (kind, group) = place.split_once(' ').expect("@KIND GROUP@");
    let members = names.iter().filter(|name| name.group == group);
    let sections: Vec<_> = members
        .map(|name| {
            let patterns = name.patterns();
            let sections: Vec<_> = patterns.iter().map(|p| format!(".{kind}.{p}")).collect();
            sections.join(" ")
        })
        .collect();
    assert!(!sections.is_empty(), "layout.txt has no group {group}");
    sections
}
