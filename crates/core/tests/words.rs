//! Names and comments of the core, the C face and the probe that say too little.

use std::path::Path;

use mallard_testing::sources::read_below;

/// Names that fit types of any module, and so tell none of them from the others.
const VAGUE: [&str; 6] = ["Answer", "Figures", "Line", "Outcome", "Page", "Place"];

/// Words that name nothing by themselves.
const PRONOUNS: [&str; 8] = [
    "both", "it", "its", "them", "these", "they", "their", "those",
];

/// A comment of no more words is all that a reader has.
const SHORT_WORDS: usize = 4;

/// The name of the type that a line declares.
fn type_name(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = (words.iter()).position(|word| ["enum", "struct", "trait", "type"].contains(word))?;
    let is_declaration = words[..at]
        .iter()
        .all(|word| word.starts_with("pub") || word.ends_with(')'));
    let name = words.get(at + 1).filter(|_| is_declaration)?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

/// Whether a line is a whole comment of few words, one of which stands for something else.
fn is_riddle(lines: &[&str], at: usize) -> bool {
    let text = |i: usize| lines.get(i)?.trim().strip_prefix("///");
    let is_alone = text(at + 1).is_none() && at.checked_sub(1).and_then(text).is_none();
    let Some(comment) = text(at).filter(|_| is_alone) else {
        return false;
    };
    let words: Vec<&str> = (comment.split(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
        .collect();
    let is_pronoun = |word: &&str| PRONOUNS.contains(&word.to_lowercase().as_str());
    words.len() <= SHORT_WORDS && words.iter().any(is_pronoun)
}

/// The lines of all sources for which `is_bad` holds, with their places.
fn bad_lines(is_bad: impl Fn(&[&str], usize) -> bool) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut bad = Vec::new();
    let mut count = 0;
    for folder in ["core/src", "mallard-c/src", "probe/src"] {
        for (file, source) in read_below(&crates.join(folder)) {
            let lines: Vec<&str> = source.lines().collect();
            count += lines.len();
            let found = (0..lines.len()).filter(|&at| is_bad(&lines, at));
            bad.extend(found.map(|at| {
                let (line, text) = (at + 1, lines[at].trim());
                format!("crates/{folder}/{file}:{line}: {text}")
            }));
        }
    }
    assert!(count > 10_000, "only {count} lines were read");
    bad
}

#[test]
fn types_have_names_that_tell_them_apart() {
    let bad = bad_lines(|lines, at| type_name(lines[at]).is_some_and(|name| VAGUE.contains(&name)));
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn short_comments_name_what_they_are_about() {
    let bad = bad_lines(is_riddle);
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn what_says_too_little_is_caught() {
    for line in [
        "pub(in crate::heap) struct Place {",
        "pub type Line<T> = [T];",
        "enum Answer {",
    ] {
        assert!(
            type_name(line).is_some_and(|name| VAGUE.contains(&name)),
            "{line}"
        );
    }
    for line in [
        "struct StatsPage {",
        "/// the type Line",
        "let kind = Line::new();",
    ] {
        assert!(
            !type_name(line).is_some_and(|name| VAGUE.contains(&name)),
            "{line}"
        );
    }
    assert!(is_riddle(&["/// Sets both of these.", "fn f() {}"], 0));
    assert!(!is_riddle(&["/// Sets both", "/// of the times."], 0));
    assert!(!is_riddle(
        &["/// Sets both decay times of it.", "fn f() {}"],
        0
    ));
}
