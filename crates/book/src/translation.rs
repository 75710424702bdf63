//! Checks that `README.zh-CN.md` matches `README.md`. It compares, section by section, everything
//! that a translation must keep: the level of the heading, the code blocks (except comments, which
//! may be translated), inline code, links and the figures in tables. An error names the section
//! that differs.

use std::path::Path;

use anyhow::{Context, Result};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

const ENGLISH: &str = "README.md";
const CHINESE: &str = "README.zh-CN.md";

/// The content under one heading, without its words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    title: String,
    level: Option<HeadingLevel>,
    blocks: Vec<String>,
    /// Sorted, because another language may order words differently.
    codes: Vec<String>,
    links: Vec<String>,
    /// The table cells without letters.
    figures: Vec<String>,
    items: usize,
    rows: usize,
}

/// The errors in the translation.
pub fn check(repository: &Path) -> Result<Vec<String>> {
    let read = |name: &str| {
        std::fs::read_to_string(repository.join(name))
            .with_context(|| format!("cannot read {name}"))
    };
    Ok(compare(&read(ENGLISH)?, &read(CHINESE)?))
}

fn compare(english: &str, chinese: &str) -> Vec<String> {
    let (ours, theirs) = (sections(english), sections(chinese));
    let levels = |sections: &[Section]| sections.iter().map(|s| s.level).collect::<Vec<_>>();
    if levels(&ours) != levels(&theirs) {
        return vec![format!(
            "{CHINESE} and {ENGLISH} have different headings: {} and {} of them",
            theirs.len() - 1,
            ours.len() - 1
        )];
    }
    ours.iter()
        .zip(&theirs)
        .flat_map(|(ours, theirs)| differences(ours, theirs))
        .collect()
}

fn differences(ours: &Section, theirs: &Section) -> Vec<String> {
    let mut found = Vec::new();
    let mut lists = |what: &str, ours_has: &[String], theirs_has: &[String]| {
        if ours_has == theirs_has {
            return;
        }
        let lacks = |a: &[String], b: &[String]| {
            let mut rest = b.to_vec();
            a.iter()
                .filter(|item| match rest.iter().position(|other| other == *item) {
                    Some(at) => {
                        rest.remove(at);
                        false
                    }
                    None => true,
                })
                .map(|item| format!("{item:?}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        found.push(format!(
            "{CHINESE}, {:?}: {what} differ from {ENGLISH}'s {:?}; only there: [{}]; only here: [{}]",
            theirs.title,
            ours.title,
            lacks(ours_has, theirs_has),
            lacks(theirs_has, ours_has)
        ));
    };
    lists("code blocks", &ours.blocks, &theirs.blocks);
    lists("pieces of code", &ours.codes, &theirs.codes);
    lists("links", &ours.links, &theirs.links);
    lists("figures", &ours.figures, &theirs.figures);
    let count = |n: usize| [n.to_string()];
    lists(
        "numbers of list items",
        &count(ours.items),
        &count(theirs.items),
    );
    lists(
        "numbers of table rows",
        &count(ours.rows),
        &count(theirs.rows),
    );
    found
}

/// The first section is the text before any heading.
fn sections(text: &str) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut block: Option<(String, String)> = None;
    let mut cell: Option<String> = None;
    let mut in_heading = false;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        let section = sections.last_mut().expect("there is a first one");
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                in_heading = true;
                sections.push(Section {
                    level: Some(level),
                    ..Section::default()
                });
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                block = Some((language, String::new()));
            }
            Event::End(TagEnd::CodeBlock) => {
                let (language, text) = block.take().expect("a block that ends began");
                section.blocks.push(without_words(&language, &text));
            }
            Event::Start(Tag::TableCell) => cell = Some(String::new()),
            Event::End(TagEnd::TableCell) => {
                let text = cell.take().unwrap_or_default();
                if text.contains(|c: char| c.is_ascii_digit())
                    && !text.contains(char::is_alphabetic)
                {
                    section.figures.push(text);
                }
            }
            Event::Start(Tag::TableRow) => section.rows += 1,
            Event::Start(Tag::Item) => section.items += 1,
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                section.links.push(dest_url.into_string());
            }
            Event::Code(code) => section.codes.push(code.into_string()),
            Event::Text(text) => {
                if let Some((_, so_far)) = &mut block {
                    so_far.push_str(&text);
                } else if let Some(so_far) = &mut cell {
                    so_far.push_str(&text);
                } else if in_heading {
                    section.title.push_str(&text);
                }
            }
            _ => {}
        }
    }
    for section in &mut sections {
        section.codes.sort();
        section
            .links
            .sort_by_key(|link| link == ENGLISH || link == CHINESE);
        // Each README links to the other.
        section
            .links
            .retain(|link| link != ENGLISH && link != CHINESE);
        section.links.sort();
    }
    sections
}

/// A code block without the parts that a translator may change: shell comments and, in a block
/// without a language (a map of folders), all but the first word of each line.
fn without_words(language: &str, text: &str) -> String {
    let lines = text.lines().map(|line| match language {
        "" => line.split_whitespace().next().unwrap_or(""),
        "console" | "sh" => match line.find(" #") {
            Some(at) => line[..at].trim_end(),
            None => line,
        },
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH_TEXT: &str = "\
# Name
Say `x`, then `y`; see [a](a.md) and [中文](README.zh-CN.md).

```console
$ run it   # quickly
```

## Figures
| what | time |
| --- | --- |
| a thing | 1.03 |

```
docs/   notes
```
";

    fn chinese(from: &str, to: &str) -> Vec<String> {
        let text = "\
# 名
先 `y` 后 `x`；见 [甲](a.md)、[English](README.md)。

```console
$ run it   # 快
```

## 数字
| 什么 | 时间 |
| --- | --- |
| 一物 | 1.03 |

```
docs/   笔记
```
";
        assert!(text.contains(from));
        compare(ENGLISH_TEXT, &text.replace(from, to))
    }

    #[test]
    fn a_faithful_translation_has_no_faults() {
        assert_eq!(chinese("快", "很快"), Vec::<String>::new());
    }

    #[test]
    fn everything_but_words_must_be_the_same() {
        for (from, to) in [
            ("run it", "run this"),
            ("`x`", "`z`"),
            ("(a.md)", "(b.md)"),
            ("1.03", "1.02"),
            ("docs/", "doc/"),
            ("## 数字", "### 数字"),
            ("| 一物 | 1.03 |", ""),
        ] {
            assert!(!chinese(from, to).is_empty(), "{from} -> {to}");
        }
    }
}
