//! The count of `unsafe` blocks in each folder of the sources, tests aside, is the one recorded in
//! `unsafe_blocks.txt`. So a block more is a line in a commit, which says why; a block less is
//! recorded too, and cannot come back unseen.
#![cfg(feature = "sources")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use mallard_testing::sources::proc_macro2::{Delimiter, TokenStream, TokenTree};
use mallard_testing::sources::{is_word, read_below};

/// The blocks in these tokens, modules of tests and of models aside.
fn blocks_in(tokens: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut count = 0;
    let mut at = 0;
    while at < tokens.len() {
        let is_test = ["tests", "models"]
            .iter()
            .any(|name| tokens.get(at + 1).is_some_and(|token| is_word(token, name)));
        if is_word(&tokens[at], "mod") && is_test {
            at += 3;
            continue;
        }
        let body = match tokens.get(at + 1) {
            Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
            _ => false,
        };
        count += usize::from(is_word(&tokens[at], "unsafe") && body);
        if let TokenTree::Group(group) = &tokens[at] {
            count += blocks_in(group.stream());
        }
        at += 1;
    }
    count
}

fn is_test(file: &str) -> bool {
    let parts = file.trim_end_matches(".rs").split('/');
    parts
        .into_iter()
        .any(|part| ["tests", "models"].contains(&part))
}

/// `core/src/heap/runs/pool.rs` is counted for `core/src/heap`, `formats/src/kind.rs` for
/// `formats/src`.
fn folder_of(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').collect();
    let folders = &parts[..parts.len() - 1];
    folders[..folders.len().min(3)].join("/")
}

#[test]
fn unsafe_blocks_are_as_many_as_recorded() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut counts = BTreeMap::<String, usize>::new();
    for (file, source) in read_below(crates) {
        if file.split('/').nth(1) != Some("src") || is_test(&file) {
            continue;
        }
        let tokens = source.parse().expect("a source file consists of tokens");
        *counts.entry(folder_of(&file)).or_default() += blocks_in(tokens);
    }
    counts.retain(|_, count| *count > 0);
    assert!(counts.len() > 20, "only {} folders were read", counts.len());
    let mut found = String::new();
    for (folder, count) in &counts {
        writeln!(found, "{count:4} {folder}").unwrap();
    }
    let recorded = include_str!("unsafe_blocks.txt");
    assert!(
        found == recorded,
        "record the new counts in crates/testing/tests/unsafe_blocks.txt, and say in the commit \
         why there are more:\n{found}"
    );
}
