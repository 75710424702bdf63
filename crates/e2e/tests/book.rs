//! The book's code must work: its C programs compile and run on the library, its option strings are
//! valid, the `mallctl` names it mentions exist, and it explains each message that precedes an
//! abort. The tests read the chapters themselves; nothing is kept twice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use mallard_e2e::{Allocator, Library, Sandbox, process, repository};

/// A code block of a chapter.
struct Block {
    /// The chapter and line, in the form that editors accept.
    at: String,
    language: String,
    text: String,
}

/// A chapter: its code blocks and its inline code.
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
        for (number, line) in text.lines().enumerate() {
            if let Some(language) = line.strip_prefix("```") {
                in_block = !in_block;
                if in_block {
                    chapter.blocks.push(Block {
                        at: format!("{}:{}", chapter.name, number + 1),
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

/// The hand-written chapters and the READMEs. The references are generated from the code's tables,
/// and the design notes quote former states.
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

/// The option strings of a chapter: the values given to a variable or to `--conf`, and inline code
/// that looks like one.
fn option_strings(chapter: &Chapter) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let texts = chapter
        .blocks
        .iter()
        .map(|block| match block.language.as_str() {
            // systemd needs percent signs doubled.
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

/// The option string, with the sandbox in the place of folders for temporary files.
fn inside(sandbox: &Sandbox, string: &str) -> String {
    let items = string.split(',').map(|item| {
        let file = (item.split_once(":/tmp/")).or_else(|| item.split_once(":/var/tmp/"));
        match file {
            Some((key, file)) => format!("{key}:{}", sandbox.path(file).display()),
            None => item.to_owned(),
        }
    });
    items.collect::<Vec<_>>().join(",")
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
        let outcome = sandbox.run_own(command.env("MALLOC_CONF", inside(&sandbox, &string)));
        outcome.expect_success();
        // Strings that ask for a report produce one; only complaints are errors.
        let said = outcome.stderr_text();
        assert!(
            !said.contains("valid:") && !said.contains("unknown option"),
            "{string}: {said}"
        );
    }
}

fn compile(source: &Path, program: &Path, extra: &[&str]) {
    let include = repository().join("crates/mallard-c");
    let output = Command::new("cc")
        .args("-std=gnu11 -Wall -Wextra -Werror -O1 -fno-builtin -pthread".split(' '))
        .arg("-I")
        .arg(&include)
        .args(extra)
        .arg("-o")
        .arg(program)
        .arg(source)
        .args(if extra.is_empty() {
            vec![
                Library::release().shared.clone().into_os_string(),
                "-ldl".into(),
            ]
        } else {
            Vec::new()
        })
        .output()
        .expect("cc can be started");
    assert!(
        output.status.success(),
        "{}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Compares a program's output with what the book shows: word for word, but numbers that depend on
/// the machine and system only approximately.
fn expect_like(shown: &str, printed: &str, at: &str) {
    let near = |a: f64, b: f64| (a - b).abs() <= 0.1 * a.max(b) + 700.0;
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let (shown_words, printed_words) = (words(shown), words(printed));
    let alike = shown_words.len() == printed_words.len()
        && shown_words
            .iter()
            .zip(&printed_words)
            .all(|(a, b)| match (a.parse(), b.parse()) {
                (Ok(a), Ok(b)) => near(a, b),
                _ => a == b,
            });
    assert!(
        alike,
        "{at}: the book shows\n{shown}\nand it printed\n{printed}"
    );
}

#[test]
fn every_program_compiles_and_does_what_it_is_for() {
    let mut programs = 0;
    let blocks: Vec<Block> = chapters()
        .into_iter()
        .flat_map(|chapter| chapter.blocks)
        .collect();
    for (i, block) in blocks.iter().enumerate() {
        if block.language != "c" {
            continue;
        }
        let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
        let name = block.at.replace([':', '/', '.'], "-");
        let source = sandbox.write(&format!("{name}.c"), &block.text);
        let program = sandbox.path(&name);
        if !block.text.contains("int main(") {
            compile(&source, &program, &["-c"]);
            continue;
        }
        programs += 1;
        compile(&source, &program, &[]);
        for library in Library::under_test() {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let outcome = process::run(
                &mut sandbox.command(&program),
                std::time::Duration::from_secs(300),
            )
            .unwrap_or_else(|error| panic!("{} on {}: {error}", block.at, library.name));
            let outcome = outcome
                .success()
                .unwrap_or_else(|account| panic!("{} on {}: {account}", block.at, library.name));
            assert_eq!(
                outcome.stderr_text(),
                "",
                "{} on {}",
                block.at,
                library.name
            );
            // A text block after a program is its output.
            if let Some(shown) = blocks.get(i + 1).filter(|next| next.language == "text") {
                expect_like(&shown.text, &outcome.stdout_text(), &block.at);
            }
        }
    }
    assert!(programs >= 5, "the book has programs: {programs}");
}

/// The `mallctl` names that a chapter mentions, with 0 for each number that is left open.
fn names(chapter: &Chapter) -> Vec<String> {
    const BRANCHES: [&str; 8] = [
        "thread", "tcache", "arena", "arenas", "stats", "prof", "opt", "config",
    ];
    chapter
        .codes
        .iter()
        .filter(|code| {
            code.split_once('.').is_some_and(|(branch, rest)| {
                BRANCHES.contains(&branch)
                    && rest.bytes().all(|b| {
                        b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.<>".contains(&b)
                    })
            })
        })
        .map(|code| {
            ["<i>", "<j>"]
                .iter()
                .fold(code.clone(), |name, open| name.replace(open, "0"))
        })
        .collect()
}

#[test]
fn every_name_of_the_tree_exists() {
    let names: BTreeSet<String> = chapters().iter().flat_map(names).collect();
    assert!(names.len() > 20, "the book speaks of the tree: {names:?}");
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    let source = sandbox.write(
        "names.c",
        "#include <mallard.h>\n\
         #include <stdio.h>\n\
         int main(int count, char **names) {\n\
             for (int i = 1; i < count; i++) {\n\
                 size_t mib[8], depth = 8;\n\
                 if (mallctlnametomib(names[i], mib, &depth) != 0) puts(names[i]);\n\
             }\n\
             return 0;\n\
         }\n",
    );
    let program = sandbox.path("names");
    compile(&source, &program, &[]);
    let mut command = sandbox.command(&program);
    let outcome = sandbox.run_own(command.args(&names));
    assert_eq!(outcome.expect_success(), "", "no such names");
}

/// The messages with which the library aborts, as quoted in `die!` and `tell` in the source.
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
                .chain(text.split("tell(format_args!(").skip(1))
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

/// A text without its figures, which the source has in braces and the book as 0x…, N and M.
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
        .map(|word| match word.trim_end_matches([',', ':']) {
            "N" | "M" | "…" => word.replace(word.trim_end_matches([',', ':']), "*"),
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
    last_lines(&repository().join("crates/core/src"), &mut lines);
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
