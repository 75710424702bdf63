//! Checks the links of pages that are not part of the book, such as the README, against the files
//! of the repository.

use std::path::Path;

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag};

use crate::links::{is_elsewhere, normal};

/// The errors in the links of one page, given its path in the repository.
pub fn check(repository: &Path, name: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(repository.join(name))
        .with_context(|| format!("cannot read {name}"))?;
    let folder = Path::new(name).with_file_name("");
    let faults = destinations(&text)
        .into_iter()
        .filter(|link| !is_elsewhere(link))
        .filter_map(|link| {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let there =
                normal(&folder.join(file)).is_some_and(|path| repository.join(path).exists());
            if !there {
                Some(format!("{name} links to {link}: no such file"))
            } else if !anchor.is_empty() {
                // Renderers differ in how they name the anchors of headings.
                Some(format!(
                    "{name} links to {link}: link to the file, not into it"
                ))
            } else {
                None
            }
        })
        .collect();
    Ok(faults)
}

fn destinations(text: &str) -> Vec<String> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.into_string())
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_into_files_are_faults() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let text =
            "[a](here.md) [b](gone.md) [c](here.md#x) [d](https://example.org/) [e](../up.md)";
        std::fs::write(folder.path().join("README.md"), text).expect("writes");
        std::fs::write(folder.path().join("here.md"), "").expect("writes");
        let faults = check(folder.path(), "README.md").expect("reads");
        assert_eq!(faults.len(), 3, "{faults:?}");
        std::fs::create_dir(folder.path().join("below")).expect("makes a folder");
        std::fs::write(
            folder.path().join("below/README.md"),
            "[a](../here.md) [b](here.md)",
        )
        .expect("writes");
        let below = check(folder.path(), "below/README.md").expect("reads");
        assert_eq!(below.len(), 1, "{below:?}");
        for (fault, link) in faults.iter().zip(["gone.md", "here.md#x", "../up.md"]) {
            assert!(fault.contains(link), "{fault}");
        }
    }
}
