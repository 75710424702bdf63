//! Reads the console lines of the documentation: those that begin with `$ ` in blocks of the
//! language `console`.

use std::path::{Path, PathBuf};

/// A line that a reader types.
#[derive(Debug)]
pub struct Line {
    /// The chapter and the number of the line, in the form that editors accept.
    pub at: String,
    /// What is typed, with its continuations and its comment.
    pub typed: String,
    /// The output that the chapter shows after it.
    pub shown: Vec<String>,
}

/// A page with console lines.
pub struct Chapter {
    pub name: String,
    pub lines: Vec<Line>,
}

pub fn repository() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("two folders above")
}

impl Line {
    /// What the shell reads, without a comment.
    pub fn command(&self) -> &str {
        self.typed
            .split("  #")
            .next()
            .unwrap_or_default()
            .trim_end()
    }
}

/// The pages for users that have console lines: the READMEs and the book.
pub fn chapters() -> Vec<Chapter> {
    let book = std::fs::read_dir(repository().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = book.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == "md"));
    pages.extend(["README.md", "README.zh-CN.md"].map(|name| repository().join(name)));
    pages.sort();
    let chapter = |page: PathBuf| {
        let name = page.strip_prefix(repository()).unwrap();
        let name = name.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&page).unwrap();
        Chapter {
            lines: lines(&name, &text),
            name,
        }
    };
    let all = pages.into_iter().map(chapter);
    all.filter(|chapter| !chapter.lines.is_empty()).collect()
}

fn lines(chapter: &str, text: &str) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let (mut in_block, mut is_console) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            in_block = !in_block;
            is_console = in_block && language == "console";
        } else if !is_console {
        } else if let Some(typed) = line.trim_start().strip_prefix("$ ") {
            found.push(Line {
                at: format!("{chapter}:{number}"),
                typed: typed.to_owned(),
                shown: Vec::new(),
            });
        } else {
            let last = found.last_mut().expect("output follows a line");
            if last.typed.ends_with('\\') {
                last.typed = format!("{}\n{line}", last.typed);
            } else {
                last.shown.push(line.to_owned());
            }
        }
    }
    found
}

#[test]
fn lines_have_their_continuations_and_their_output() {
    let page = "```console\n$ one \\\n    more\nshown\n$ two  # why\n```\n```text\n$ no\n```\n";
    let read = lines("page", page);
    let parts = |line: &Line| (line.at.clone(), line.typed.clone(), line.shown.join("|"));
    let one = ("page:2".into(), "one \\\n    more".into(), "shown".into());
    let two = ("page:5".into(), "two  # why".into(), String::new());
    assert_eq!(read.iter().map(parts).collect::<Vec<_>>(), [one, two]);
}
