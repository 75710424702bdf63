//! What the book tells readers to write must work: its option strings are read without complaint, and each
//! last line before an abort is explained. The chapters are read as they are; nothing is kept twice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mallard_e2e::{Allocator, Library, Sandbox, repository};

/// A code block of a chapter.
struct Block {
    language: String,
    text: String,
}

/// A chapter: its code blocks, and what stands between backticks elsewhere.
struct Chapter {
    name: String,
    blocks: Vec<Block>,
    codes: Vec<String>,
}

impl Chapter {
    fn read(path: &Path) -> Chapter {
        let name = path
            .strip_prefix(repository())
            .expect("chapters lie in the repository")
            .display()
            .to_string();
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("cannot read {name}: {error}"));
        let mut chapter = Chapter {
            name,
            blocks: Vec::new(),
            codes: Vec::new(),
        };
        let mut in_block = false;
        for line in text.lines() {
            if let Some(language) = line.strip_prefix("```") {
                in_block = !in_block;
                if in_block {
                    chapter.blocks.push(Block {
                        language: language.to_owned(),
                        text: String::new(),
                    });
                }
            } else if in_block {
                let block = chapter.blocks.last_mut().expect("one has begun");
                block.text += line;
                block.text += "\n";
            } else {
                let codes = line.split('`').skip(1).step_by(2);
                chapter.codes.extend(codes.map(str::to_owned));
            }
        }
        assert!(!in_block, "{}: a code block does not end", chapter.name);
        chapter
    }
}

/// The chapters that people wrote for people, and the READMEs. The references are made from the tables of
/// the code, and the design notes quote what was.
fn chapters() -> Vec<Chapter> {
    let docs = repository().join("docs");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&docs)
        .expect("docs is there")
        .map(|entry| entry.expect("docs can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .filter(|path| {
            !["options.md", "mallctl.md"]
                .iter()
                .any(|name| path.ends_with(name))
        })
        .collect();
    paths.push(repository().join("README.md"));
    paths.push(repository().join("README.zh-CN.md"));
    paths.sort();
    assert!(paths.len() > 10, "the book is there: {paths:?}");
    paths.iter().map(|path| Chapter::read(path)).collect()
}

/// The option strings of a chapter: whatever is given to a variable or to `--conf`, and code within lines
/// that has the form of one.
fn option_strings(chapter: &Chapter) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let texts = chapter
        .blocks
        .iter()
        .map(|block| match block.language.as_str() {
            // systemd has percent signs written twice.
            "ini" => block.text.replace("%%", "%"),
            _ => block.text.clone(),
        });
    for text in texts.chain(chapter.codes.iter().cloned()) {
        for opening in [
            "MALLOC_CONF=",
            "MALLARD_CONF=",
            "MALLARD_BUILD_CONF=",
            "--conf ",
            "malloc_conf = \"",
            "ln -s '",
        ] {
            for rest in text.split(opening).skip(1) {
                let end = rest.find([' ', '"', '\'', '\n', ';']).unwrap_or(rest.len());
                found.insert(rest[..end].to_owned());
            }
        }
    }
    found.extend(
        chapter
            .codes
            .iter()
            .filter(|code| is_option_string(code))
            .cloned(),
    );
    found.retain(|string| string.contains(':') && string != "key:value,key:value");
    found
}

fn is_option_string(code: &str) -> bool {
    let is_key =
        |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let is_value = |value: &str| {
        !value.is_empty()
            && value
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_%.".contains(&b))
    };
    code != "key:value"
        && code.split(',').all(|item| {
            item.split_once(':')
                .is_some_and(|(key, value)| is_key(key) && is_value(value))
        })
}

#[test]
fn every_option_string_is_read_without_complaint() {
    let mut strings = BTreeSet::new();
    for chapter in chapters() {
        strings.extend(option_strings(&chapter));
    }
    assert!(
        strings.len() > 20,
        "the book has option strings: {strings:?}"
    );
    let library = Library::release();
    for string in strings {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let mut command = sandbox.command("true");
        let outcome = sandbox.run_own(command.env("MALLOC_CONF", &string));
        outcome.expect_success();
        // The strings that make a report do so; what must not be is a complaint.
        let said = outcome.stderr_text();
        assert!(
            !said.contains("valid:") && !said.contains("unknown option"),
            "{string}: {said}"
        );
    }
}

/// The texts that the library ends with, as the source has them between the quotes of `die!`.
fn last_lines(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("sources can be listed").path();
        if path.is_dir() && !path.ends_with("tests") {
            last_lines(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("fault.rs") {
            let text = std::fs::read_to_string(&path).expect("a source can be read");
            for call in text
                .split("die!(")
                .skip(1)
                .chain(text.split("die(format_args!(").skip(1))
            {
                let call = call.trim_start();
                let literal = call.strip_prefix('"').unwrap_or_else(|| {
                    panic!("{}: die! without its text: {:.60}", path.display(), call)
                });
                let end = literal.find('"').expect("a text ends");
                found.insert(literal[..end].to_owned());
            }
        }
    }
}

/// A text without its figures: what the source has in braces, and the book as 0x…, N and M.
fn without_figures(text: &str) -> String {
    let mut result = String::new();
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                result.push('*');
            }
            c if depth == 0 => result.push(c),
            _ => {}
        }
    }
    result
        .replace("0x…", "*")
        .split(' ')
        .map(|word| match word.trim_end_matches(',') {
            "N" | "M" | "…" => word.replace(word.trim_end_matches(','), "*"),
            _ => word.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn every_last_line_before_an_abort_is_explained() {
    let chapter = Chapter::read(&repository().join("docs/troubleshooting.md"));
    let explained: BTreeSet<String> = chapter
        .codes
        .iter()
        .map(|code| without_figures(code))
        .collect();
    let mut lines = BTreeSet::new();
    last_lines(&repository().join("crates/mallard/src"), &mut lines);
    last_lines(&repository().join("crates/mallard-c/src"), &mut lines);
    assert!(lines.len() >= 8, "the library has last lines: {lines:?}");
    let missing: Vec<&String> = lines
        .iter()
        .filter(|line| !explained.contains(&without_figures(line)))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/troubleshooting.md: {missing:#?}"
    );
}
