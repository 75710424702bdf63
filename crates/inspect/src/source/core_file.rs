//! The statistics of a process that left a core file: those of its last publication.

use std::path::Path;

use mallard_formats::page::{self, About, FIGURES_AT_WORD, WORD_BYTES};
use mallard_formats::records;

use super::ROOT_PAGE_AT;
use crate::memory::Memory;
use crate::memory::core::Core;
use crate::memory::image;
use crate::page::{BYTES_MAX, Words};
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// A process that has ended.
#[derive(Debug)]
pub struct Process {
    /// 0 if the file has no number.
    pub pid: u32,
    pub name: String,
    pub snapshot: Snapshot,
}

/// Reads the statistics of a core file. Files of the process are looked for under `root`.
///
/// # Errors
/// The file is not a core file, lacks the page, or the process had none.
pub fn read(bytes: &[u8], root: Option<&Path>) -> Result<Process> {
    let mut core = Core::parse(bytes)?;
    core.open_files(root);
    let pid = core.pid.unwrap_or(0);
    match snapshot(&core, pid) {
        Ok(snapshot) => Ok(Process {
            pid,
            name: core.name.clone(),
            snapshot,
        }),
        // What is missing is most likely behind the end.
        Err(error) => Err(core.short().map_or(error, Error::from)),
    }
}

fn snapshot(core: &Core<'_>, pid: u32) -> Result<Snapshot> {
    let mapped = core.mapped();
    let images = mapped.iter().filter(|mapped| mapped.begins_image());
    let roots: Vec<u64> = images
        .filter_map(|mapped| image::read(core, mapped.start)?.root)
        .collect();
    if roots.is_empty() {
        return Err(Error::NoMallard(pid));
    }
    // There may be several copies of Mallard; one of them served the program.
    let page = roots.iter().find_map(|&root| page_of(core, root));
    let words = words(core, page.ok_or(Error::NoPage(pid))?, pid)?;
    Ok(Snapshot::read(&words, words.about(About::Published)))
}

/// The page that a root block leads to.
fn page_of(core: &Core<'_>, root: u64) -> Option<u64> {
    let word = |at| {
        let mut word = [0; WORD_BYTES];
        core.copy(at, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    };
    let page = word(root.wrapping_add(ROOT_PAGE_AT))?;
    (word(root)? == records::MAGIC && page != 0).then_some(page)
}

fn words(core: &Core<'_>, at: u64, pid: u32) -> Result<Words> {
    let mut head = [0; FIGURES_AT_WORD * WORD_BYTES];
    core.copy(at, &mut head).map_err(|_| Error::NoPage(pid))?;
    let head = Words::new(&head);
    if head.get(page::WORD_MAGIC) != page::MAGIC {
        return Err(Error::NoPage(pid));
    }
    if head.layout() != page::LAYOUT {
        return Err(Error::Version {
            pid,
            layout: head.layout(),
            known: page::LAYOUT,
        });
    }
    if !(FIGURES_AT_WORD * WORD_BYTES..=BYTES_MAX).contains(&head.bytes()) {
        return Err(Error::Damaged(pid));
    }
    let mut copy = vec![0; head.bytes()];
    core.copy(at, &mut copy).map_err(|_| Error::Damaged(pid))?;
    let words = Words::new(&copy);
    if words.get(page::WORD_SEQUENCE).is_multiple_of(2) {
        Ok(words)
    } else {
        Err(Error::Torn(pid))
    }
}
