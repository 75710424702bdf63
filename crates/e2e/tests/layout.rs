//! The functions, constants and variables that the linker places by name
//! (`crates/mallard-c/layout.txt`) must be symbols of the library: a renamed, moved or inlined one
//! would silently lose its place.

#[path = "../../mallard-c/layout.rs"]
mod layout;

use std::fs;
use std::path::Path;
use std::process::Command;

use mallard_e2e::{Library, process};

fn list() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mallard-c/layout.txt");
    fs::read_to_string(file).expect("the list is a file of the repository")
}

/// Whether the text matches the pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The library's symbols: lines of a name, a kind, an address and a length.
fn symbols(library: &Library) -> String {
    let mut nm = Command::new("nm");
    nm.args(["--defined-only", "--format=posix"])
        .arg(&library.shared);
    process::run(&mut nm, std::time::Duration::from_secs(300))
        .expect("nm comes with the C compiler")
        .expect_success()
}

/// The two functions are short, and called by turns. Where their first instructions lie at the end
/// of a cache line, a pair of calls takes a tenth longer (`pairs-1` of the suite). If this fails,
/// change the space before them in `layout.ld.in`.
#[test]
fn malloc_and_free_do_not_begin_at_the_end_of_a_cache_line() {
    const LINE_BYTES: u64 = 64;
    const LAST_START_BYTE: u64 = 32;
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    let symbols = symbols(library);
    for name in ["malloc", "free"] {
        let address = symbols.lines().find_map(|line| {
            let mut words = line.split(' ');
            (words.next() == Some(name)).then(|| words.nth(1))?
        });
        let address = address.and_then(|address| u64::from_str_radix(address, 16).ok());
        let into_line = address.expect("nm shows its address") % LINE_BYTES;
        assert!(
            into_line <= LAST_START_BYTE,
            "{name} begins {into_line} bytes into a line"
        );
    }
}

#[test]
fn every_name_of_the_list_is_a_symbol_of_the_library() {
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    let symbols = symbols(library);
    let symbols: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let list = list();
    let lost: Vec<_> = layout::names(&list)
        .iter()
        .filter(|name| {
            let patterns = name.patterns();
            let is_one = |symbol: &&str| patterns.iter().any(|pattern| matches(pattern, symbol));
            !symbols.iter().any(is_one)
        })
        .map(|name| format!("[{}] {}", name.group, name.written))
        .collect();
    assert!(
        lost.is_empty(),
        "of crates/mallard-c/layout.txt no symbol of the library has these names:\n{}",
        lost.join("\n")
    );
}

#[test]
fn a_name_has_the_patterns_of_both_manglings() {
    let list = "# note\n[one]\nheap::state::State::map_rest\n[two]\nc malloc\nheap::victims::*\n";
    let names = layout::names(list);
    let groups: Vec<_> = names.iter().map(|name| name.group).collect();
    assert_eq!(groups, ["one", "two", "two"]);
    for (name, symbol) in [
        (
            0,
            "_ZN12mallard_core4heap5state5State8map_rest17h0123456789abcdefE",
        ),
        (
            0,
            "_RNvMs_NtNtCs1_12mallard_core4heap5stateNtB4_5State8map_rest",
        ),
        (1, "malloc"),
        (2, "_ZN12mallard_core4heap7victims4pick17h0123456789abcdefE"),
    ] {
        let patterns = names[name].patterns();
        assert!(patterns.iter().any(|p| matches(p, symbol)), "{symbol}");
        assert!(!patterns.iter().any(|p| matches(p, "mallocx")));
    }
}
