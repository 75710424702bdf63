//! Checks every link of the pages: its file must exist, and so must the anchor in it. The pages are
//! parsed as HTML, so the check covers mdBook's output rather than the chapter's text.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use percent_encoding::percent_decode_str;

/// A page's anchors and links.
#[derive(Default)]
struct Page {
    ids: BTreeSet<String>,
    links: Vec<String>,
}

impl Page {
    fn read(path: &Path) -> Result<Page> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Page::parse(&text))
    }

    fn parse(text: &str) -> Page {
        let input = BufferQueue::default();
        input.push_back(StrTendril::from_slice(text));
        let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
        // Without scripts, the tokenizer never needs to pause.
        let _ = tokenizer.feed(&input);
        tokenizer.end();
        tokenizer.sink.0.into_inner()
    }
}

#[derive(Default)]
struct Sink(RefCell<Page>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        if let Token::TagToken(Tag {
            kind: TagKind::StartTag,
            attrs,
            ..
        }) = token
        {
            let mut page = self.0.borrow_mut();
            for attribute in attrs {
                let value = attribute.value.to_string();
                match &*attribute.name.local {
                    "id" => {
                        page.ids.insert(value);
                    }
                    "href" | "src" => page.links.push(value),
                    _ => {}
                }
            }
        }
        TokenSinkResult::Continue
    }
}

/// The errors in the pages of these chapters.
pub fn check(out: &Path, chapters: &BTreeSet<PathBuf>) -> Result<Vec<String>> {
    let mut pages: HashMap<PathBuf, Page> = HashMap::new();
    for chapter in chapters {
        let path = chapter.with_extension("html");
        let page = Page::read(&out.join(&path))?;
        pages.insert(path, page);
    }
    let mut faults = BTreeSet::new();
    for (path, page) in &pages {
        for link in &page.links {
            if let Some(fault) = fault_of(out, &pages, path, link) {
                faults.insert(format!(
                    "docs: {} links to {link}: {fault}",
                    path.with_extension("md").display()
                ));
            }
        }
    }
    Ok(faults.into_iter().collect())
}

fn fault_of(
    out: &Path,
    pages: &HashMap<PathBuf, Page>,
    from: &Path,
    link: &str,
) -> Option<&'static str> {
    if is_elsewhere(link) {
        return None;
    }
    let link = percent_decode_str(link).decode_utf8_lossy();
    let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
    let target = if file.is_empty() {
        from.to_path_buf()
    } else {
        match normal(&from.with_file_name("").join(file)) {
            Some(path) => path,
            None => return Some("leaves the book"),
        }
    };
    match pages.get(&target) {
        Some(page) if anchor.is_empty() || page.ids.contains(anchor) => None,
        Some(_) => Some("no such heading"),
        None if out.join(&target).is_file() => None,
        None => Some("no such page"),
    }
}

/// Whether a link leads to another site. Such links are not checked.
pub fn is_elsewhere(link: &str) -> bool {
    ["http://", "https://", "mailto:", "data:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
}

/// The path without `.` and `..`; none if it leaves its root.
pub fn normal(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => result.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !result.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(pages: &[(&str, &str)]) -> HashMap<PathBuf, Page> {
        pages
            .iter()
            .map(|(path, text)| (PathBuf::from(path), Page::parse(text)))
            .collect()
    }

    fn fault(link: &str) -> Option<&'static str> {
        let pages = book(&[
            ("a.html", "<h1 id='top'>A</h1><a href='b/c.html#here'>c</a>"),
            ("b/c.html", "<p id=here>"),
        ]);
        fault_of(Path::new("/nowhere"), &pages, Path::new("b/c.html"), link)
    }

    #[test]
    fn existing_targets_are_no_faults() {
        for link in ["../a.html", "../a.html#top", "c.html#here", "#here", ""] {
            assert_eq!(fault(link), None, "{link}");
        }
        assert_eq!(fault("https://example.org/x#y"), None);
    }

    #[test]
    fn missing_pages_missing_headings_and_links_out_of_the_book_are_faults() {
        assert_eq!(fault("a.html"), Some("no such page"));
        assert_eq!(fault("../a.html#bottom"), Some("no such heading"));
        assert_eq!(fault("#there"), Some("no such heading"));
        assert_eq!(fault("../../README.md"), Some("leaves the book"));
        assert_eq!(fault("/etc/passwd"), Some("leaves the book"));
    }

    #[test]
    fn links_and_anchors_are_found_in_any_tag() {
        let page = Page::parse("<!-- <a href=no> --><IMG SRC=x><a id='y' href=\"z&amp;w\">");
        assert_eq!(page.links, ["x", "z&w"]);
        assert!(page.ids.contains("y"));
    }
}
