//! Builds the book: every chapter of `docs/` becomes a page of `target/book`, using mdBook as a
//! library. Then it checks what mdBook does not check: each page is a chapter of the summary, each
//! link and anchor of the pages, and of those outside the book, exists ([`links`], [`readme`]). It
//! prints a line for each error and exits with 1. The log of experiments, `docs/log`, is no part of
//! the book; only its links are checked.
//!
//! Links to other sites are not followed: the build works without a network.

mod links;
mod readme;
mod warnings;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mdbook_driver::MDBook;
use mdbook_driver::book::BookItem;

/// The folder of `docs/` whose pages are not chapters.
const LOG: &str = "log";

const HELP: &str = "\
Builds the book from docs/ and checks its links.

Usage: cargo run --manifest-path crates/book/Cargo.toml [-- OPTIONS]

Options:
  --open         show the book in the web browser
  --out FOLDER   write it there instead of target/book
  --help         show this";

/// The pages that are not part of the book.
const OUTSIDE: [&str; 6] = [
    "README.md",
    "README.zh-CN.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "examples/README.md",
];

struct Args {
    open: bool,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mallard-book: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let Some(args) = arguments()? else {
        println!("{HELP}");
        return Ok(true);
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("crates/book lies in the repository")?;
    let out = match args.out {
        Some(folder) => std::path::absolute(&folder)?,
        None => repository.join("target/book"),
    };
    let warnings = warnings::listen();
    let docs = repository.join("docs");
    let pages = build(&docs, &out)?;
    let mut faults = warnings.taken();
    faults.extend(links::check(&out, &pages)?);
    for name in OUTSIDE {
        faults.extend(readme::check(repository, name)?);
    }
    for file in markdown_below(&docs.join(LOG))? {
        let name = file.strip_prefix(repository)?;
        faults.extend(readme::check(repository, &name.to_string_lossy())?);
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    let index = out.join("index.html");
    println!(
        "{} chapters, {} errors: file://{}",
        pages.len(),
        faults.len(),
        index.display()
    );
    if args.open {
        opener::open(&index).with_context(|| format!("cannot show {}", index.display()))?;
    }
    Ok(faults.is_empty())
}

/// `None` if help is requested.
fn arguments() -> Result<Option<Args>> {
    let mut args = Args {
        open: false,
        out: None,
    };
    let mut given = std::env::args_os().skip(1);
    while let Some(argument) = given.next() {
        match argument.to_str() {
            Some("--open") => args.open = true,
            Some("--out") => {
                args.out = Some(given.next().context("--out needs a folder")?.into());
            }
            Some("--help" | "-h") => return Ok(None),
            _ => bail!("unknown argument {argument:?}; see --help"),
        }
    }
    Ok(Some(args))
}

/// Writes the pages and returns their sources, relative to `docs`.
fn build(docs: &Path, out: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut book = MDBook::load(docs).with_context(|| format!("cannot read {}", docs.display()))?;
    book.config.build.build_dir = out.to_path_buf();
    let chapters: BTreeSet<PathBuf> = book
        .iter()
        .filter_map(|item| match item {
            BookItem::Chapter(chapter) => chapter.source_path.clone(),
            _ => None,
        })
        .collect();
    for file in markdown_below(docs)? {
        let relative = file.strip_prefix(docs)?;
        if is_chapter(relative) && !chapters.contains(relative) {
            bail!(
                "{} is missing from docs/SUMMARY.md",
                Path::new("docs").join(relative).display()
            );
        }
    }
    book.build().context("cannot write the pages")?;
    Ok(chapters)
}

/// Whether this file of `docs/` must be in the summary.
fn is_chapter(relative: &Path) -> bool {
    relative != Path::new("SUMMARY.md") && !relative.starts_with(LOG)
}

fn markdown_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(markdown_below(&path)?);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_but_the_summary_and_the_log_is_a_chapter() {
        for page in ["lab.md", "design/decay.md", "design/log.md"] {
            assert!(is_chapter(Path::new(page)), "{page}");
        }
        for page in ["SUMMARY.md", "log/2026-11.md"] {
            assert!(!is_chapter(Path::new(page)), "{page}");
        }
    }
}
