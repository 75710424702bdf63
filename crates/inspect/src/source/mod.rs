//! Finds the page of a process and reads it.

pub mod core_file;
pub mod image;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use mallard_formats::page::{self, FIGURES_AT_WORD, WORD_BYTES};
use mallard_formats::records;
use mallard_procfs::{about, is_alive};

use crate::memory::process::read as read_memory;
use crate::page::{BYTES_MAX, Words};
use crate::process;
use crate::snapshot::Snapshot;
use crate::{Error, Result};
use image::Images;

/// What the descriptor of a page's memory leads to: its name between these.
const LINK_BEFORE: &[u8] = b"/memfd:";
const LINK_AFTER: &[u8] = b" (deleted)";
/// Where the root has the page's address.
pub(crate) const ROOT_PAGE_AT: u64 = records::ROOT_PAGE_AT as u64;
/// Attempts at a page that is being written. A write takes a microsecond, but on a busy machine the
/// writer may lose its CPU in it for longer. All attempts together take about a second.
const ATTEMPTS_MAX: u32 = 200;
/// The pause after the first attempt. Each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Where a page is.
#[derive(Debug)]
pub(crate) enum Source {
    /// In memory that others can open, by this descriptor of the process.
    Shared { file: File, descriptor: PathBuf },
    /// In the process's own memory.
    Memory { at: u64 },
}

/// Reads the page of one process.
#[derive(Debug)]
pub struct Reader {
    pub(crate) pid: u32,
    pub(crate) source: Source,
}

impl Reader {
    /// Finds the page of a process.
    ///
    /// # Errors
    /// There is no such process, or it has no page that can be read.
    pub fn open(pid: u32, images: &mut Images) -> Result<Reader> {
        if !is_alive(pid) {
            return Err(Error::Gone(pid));
        }
        if let Some(source) = shared(pid)? {
            return Ok(Reader { pid, source });
        }
        let root = images
            .root(pid)
            .map_err(|error| Error::of_files(pid, error))?;
        let Some(root) = root else {
            return Err(Error::NoMallard(pid));
        };
        let word = |at| {
            let mut word = [0; WORD_BYTES];
            read_memory(pid, at, &mut word).map(|()| u64::from_le_bytes(word))
        };
        let magic = word(root).map_err(|error| Error::of(pid, error))?;
        let at = word(root.wrapping_add(ROOT_PAGE_AT)).map_err(|error| Error::of(pid, error))?;
        if magic != records::MAGIC || at == 0 {
            return Err(Error::NoPage(pid));
        }
        // A process opens the descriptor before its root leads to the page. One that made its page
        // since the look above shares it nevertheless.
        if let Some(source) = shared(pid)? {
            return Ok(Reader { pid, source });
        }
        let source = Source::Memory { at };
        let reader = Reader { pid, source };
        let owner = reader.word(page::WORD_PID)?;
        // A child has the mapping of its parent's page until it makes its own.
        if owner != 0 && Some(owner as u32) != about::number_inside(pid) {
            return Err(Error::NoPage(pid));
        }
        Ok(reader)
    }

    /// Whether other processes of the user can read and ask without the right to debug.
    pub fn is_shared(&self) -> bool {
        matches!(self.source, Source::Shared { .. })
    }

    /// The statistics as they are now.
    ///
    /// # Errors
    /// The process is gone, runs another program now, or its page is of another layout.
    pub fn read(&self) -> Result<Snapshot> {
        Ok(Snapshot::read(&self.words()?, process::now_ns()))
    }

    /// The words of the page, of one moment.
    pub(crate) fn words(&self) -> Result<Words> {
        let head = self.head()?;
        let bytes = head.bytes();
        if !(FIGURES_AT_WORD * WORD_BYTES..=BYTES_MAX).contains(&bytes) {
            return Err(Error::Damaged(self.pid));
        }
        let mut copy = vec![0; bytes];
        let mut pause = FIRST_PAUSE;
        for _ in 0..ATTEMPTS_MAX {
            let before = self.word(page::WORD_SEQUENCE)?;
            if before.is_multiple_of(2) {
                self.at(0, &mut copy)?;
                // The figures were read after the first look and before this one.
                if self.word(page::WORD_SEQUENCE)? == before {
                    return Ok(Words::new(&copy));
                }
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Err(Error::Torn(self.pid))
    }

    /// The first words, checked.
    fn head(&self) -> Result<Words> {
        if let Source::Shared { file, descriptor } = &self.source {
            // After `exec` the file is another program's past.
            let here = file.metadata().map(|about| about.ino()).ok();
            let there = fs::metadata(descriptor).map(|about| about.ino());
            if there.map_err(|error| Error::of(self.pid, error))? != here.unwrap_or(0) {
                return Err(Error::NoPage(self.pid));
            }
        }
        let mut copy = [0; FIGURES_AT_WORD * WORD_BYTES];
        self.at(0, &mut copy)?;
        let head = Words::new(&copy);
        if head.get(page::WORD_MAGIC) != page::MAGIC {
            return Err(Error::NoPage(self.pid));
        }
        if head.layout() != page::LAYOUT {
            return Err(Error::Version {
                pid: self.pid,
                layout: head.layout(),
                known: page::LAYOUT,
            });
        }
        Ok(head)
    }

    /// A word of the page.
    pub(crate) fn word(&self, which: usize) -> Result<u64> {
        let mut word = [0; WORD_BYTES];
        self.at(which * WORD_BYTES, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn at(&self, place: usize, into: &mut [u8]) -> Result<()> {
        let read = match &self.source {
            Source::Shared { file, .. } => file.read_exact_at(into, place as u64),
            Source::Memory { at } => read_memory(self.pid, at.wrapping_add(place as u64), into),
        };
        read.map_err(|error| match error.raw_os_error() {
            // Another program's memory, after `exec`.
            Some(libc::EFAULT) => Error::NoPage(self.pid),
            _ if !is_alive(self.pid) => Error::Gone(self.pid),
            _ => Error::of(self.pid, error),
        })
    }

    /// Writes a word of the page, after checking that it is one.
    pub(crate) fn write(&self, which: usize, word: u64) -> io::Result<()> {
        let (path, at) = match &self.source {
            Source::Shared { descriptor, .. } => (descriptor.clone(), 0),
            Source::Memory { at } => (mallard_procfs::path(self.pid, "mem"), *at),
        };
        // An open file of the memory stays with the program that has it now: after `exec`, both the
        // look and the write fail.
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut magic = [0; WORD_BYTES];
        file.read_exact_at(&mut magic, at)?;
        if u64::from_le_bytes(magic) != page::MAGIC {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        file.write_all_at(&word.to_le_bytes(), at + (which * WORD_BYTES) as u64)
    }
}

/// Whether a descriptor that shows as this is the memory of a page.
fn is_link_to_a_page(target: &Path) -> bool {
    let name = target.as_os_str().as_bytes();
    let name = name.strip_prefix(LINK_BEFORE);
    name.and_then(|name| name.strip_suffix(LINK_AFTER)) == Some(page::MEMORY_NAME.to_bytes())
}

/// The page's memory by a descriptor of the process, if it has one that is its own.
fn shared(pid: u32) -> Result<Option<Source>> {
    let entries = fs::read_dir(mallard_procfs::path(pid, "fd"));
    let entries = entries
        .map_err(|error| Error::of_files(pid, error))?
        .flatten();
    for entry in entries {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let is_page = number.is_some_and(|number: i32| number >= page::DESCRIPTOR_MIN)
            && fs::read_link(entry.path()).is_ok_and(|target| is_link_to_a_page(&target));
        let Some(file) = is_page.then(|| File::open(entry.path()).ok()).flatten() else {
            continue;
        };
        let mut word = [0; WORD_BYTES];
        let owner = file
            .read_exact_at(&mut word, (page::WORD_PID * WORD_BYTES) as u64)
            .map(|()| u64::from_le_bytes(word));
        // A child may have its parent's for a moment.
        if owner.ok().map(|owner| owner as u32) == about::number_inside(pid) {
            let descriptor = entry.path();
            return Ok(Some(Source::Shared { file, descriptor }));
        }
    }
    Ok(None)
}
