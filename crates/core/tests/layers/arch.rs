//! Keeps what depends on the processor's architecture in the folders `arch`.

use std::collections::BTreeMap;
use std::path::Path;

use mallard_testing::sources::proc_macro2::{TokenStream, TokenTree};
use mallard_testing::sources::{after_colons, inside, is_mark, is_word, read_below};

/// The crates that are loaded into programs.
const CRATES: &[&str] = &["core", "formats", "http", "mallard", "mallard-c", "probe"];
/// System calls that newer architectures do not have; there are others for the same.
const OLD_CALLS: &[&str] = &[
    "access",
    "alarm",
    "arch_prctl",
    "chmod",
    "chown",
    "creat",
    "dup2",
    "epoll_create",
    "epoll_wait",
    "eventfd",
    "fork",
    "getpgrp",
    "inotify_init",
    "link",
    "lstat",
    "mkdir",
    "open",
    "pause",
    "pipe",
    "poll",
    "readlink",
    "rename",
    "rmdir",
    "select",
    "stat",
    "symlink",
    "time",
    "unlink",
    "vfork",
];

/// What in a source depends on the architecture: the lines, and why.
fn dependences(source: &str) -> Vec<(usize, String)> {
    let tokens: TokenStream = source.parse().expect("a source file consists of tokens");
    let mut found = BTreeMap::new();
    scan(&inside(tokens), &mut found);
    found.into_iter().collect()
}

fn scan(tokens: &[TokenTree], found: &mut BTreeMap<usize, String>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = &tokens[at + 1..];
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let is_macro = rest.first().is_some_and(|next| is_mark(next, '!'));
                if word == "mod"
                    && let [name, TokenTree::Group(_), ..] = rest
                    && (is_word(name, "tests") || is_word(name, "models"))
                {
                    at += 3;
                    continue;
                }
                if let Some(reason) = objection(&word, is_macro, rest) {
                    found.insert(token.span().start().line, reason);
                }
                if word == "global_asm"
                    && is_macro
                    && let Some(TokenTree::Group(lines)) = rest.get(1)
                {
                    found.extend(instructions(&inside(lines.stream())));
                }
            }
            TokenTree::Group(group) => scan(&inside(group.stream()), found),
            _ => {}
        }
        at += 1;
    }
}

/// Why a word, and what follows it, depends on the architecture; none if it does not.
fn objection(word: &str, is_macro: bool, rest: &[TokenTree]) -> Option<String> {
    let is_assembly = matches!(word, "asm" | "naked_asm") && is_macro;
    let is_old_call = (word.strip_prefix("SYS_")).is_some_and(|call| OLD_CALLS.contains(&call));
    let is_register = word == "gregs" || word.starts_with("REG_");
    if is_assembly || is_old_call || is_register || word == "target_arch" {
        return Some(format!("`{word}`"));
    }
    let is_root = matches!(word, "core" | "std");
    let after = after_colons(rest).filter(|after| is_root && is_word(&after[0], "arch"))?;
    let name = after_colons(&after[1..]).and_then(|names| names.first());
    let is_data = name.is_some_and(|name| is_word(name, "global_asm"));
    (!is_data).then(|| format!("`{word}::arch`, for more than `global_asm`"))
}

/// The lines of assembly that are not directives or labels. What another macro writes is in the
/// folder `arch`.
fn instructions(lines: &[TokenTree]) -> Vec<(usize, String)> {
    let texts = lines.iter().filter_map(|token| match token {
        TokenTree::Literal(literal) => Some((literal.span().start().line, literal.to_string())),
        _ => None,
    });
    texts
        .filter(|(_, text)| !is_data(text.trim_matches('"')))
        .map(|(line, text)| (line, format!("the instruction {text}")))
        .collect()
}

/// Whether a line of assembly is a directive or a label, or both.
fn is_data(line: &str) -> bool {
    let after_label = line.split_once(": ").map_or(line, |(_, rest)| rest);
    after_label.starts_with('.') || line.ends_with(':')
}

#[test]
fn only_the_folders_named_arch_depend_on_the_architecture() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut broken = Vec::new();
    let mut in_folders = 0;
    for name in CRATES {
        let src = crates.join(name).join("src");
        for (file, source) in read_below(&src) {
            let file = Path::new(&file).with_extension("");
            let is_in = |folder: &str| file.iter().any(|part| part == folder);
            if is_in("tests") || is_in("models") {
                continue;
            }
            let found = dependences(&source);
            if is_in("arch") {
                in_folders += found.len();
                continue;
            }
            broken.extend((found.iter()).map(|(line, what)| {
                format!("crates/{name}/src/{}.rs:{line}: {what}", file.display())
            }));
        }
    }
    assert!(
        broken.is_empty(),
        "this depends on the processor's architecture and belongs into a folder `arch`:\n{}",
        broken.join("\n")
    );
    assert!(
        in_folders > 20,
        "only {in_folders} were found in `arch`: is the search broken?"
    );
}

#[test]
fn what_depends_on_the_architecture_is_caught_however_it_is_written() {
    for source in [
        "fn f() { unsafe { core::arch::asm!(\"nop\") } }",
        "use core::arch::asm;",
        "use core::arch::{asm, global_asm};",
        "fn f() { unsafe { asm!(\"\") } }",
        "#[unsafe(naked)] fn f() { naked_asm!(\"ret\") }",
        "fn f() { core::arch::x86_64::_rdtsc(); }",
        "#[cfg(target_arch = \"x86_64\")] fn f() {}",
        "fn f() -> bool { cfg!(target_arch = \"x86_64\") }",
        "fn f() { unsafe { libc::syscall(libc::SYS_unlink, 0) } }",
        "const PC: i32 = libc::REG_RIP;",
        "core::arch::global_asm!(\".text\", \"f:\", \"ud2\");",
        "global_asm!(\"f: jmp {g}\", g = sym g);",
    ] {
        assert_eq!(dependences(source).len(), 1, "{source}");
    }
    for source in [
        "core::arch::global_asm!(\".weak f\", \"f:\", \"22: .quad {r} - 22b\", r = sym R);",
        "use core::arch::global_asm;",
        "global_asm!(\"f:\", jump_to!(\"{g}\"), g = sym g);",
        "fn f() { unsafe { libc::syscall(libc::SYS_unlinkat, 0) } }",
        "// core::arch::asm!\nconst S: &str = \"asm!\";",
        "mod tests { use core::arch::asm; }",
    ] {
        assert_eq!(dependences(source), [], "{source}");
    }
}
