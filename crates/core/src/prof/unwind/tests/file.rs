//! The unwind tables of a file on disk.

use crate::prof::unwind::bytes::Bytes;
use crate::prof::unwind::table::Table;
use std::vec::Vec;

pub struct File {
    bytes: Vec<u8>,
    index: Section,
    entries: Section,
}

#[derive(Clone, Copy)]
struct Section {
    address: usize,
    offset: usize,
    size: usize,
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes.get(at..at + size)?);
    Some(usize::from_le_bytes(word))
}

/// The section of this name, from the file's section headers.
fn section(bytes: &[u8], name: &str) -> Option<Section> {
    let (headers, count) = (number(bytes, 40, 8)?, number(bytes, 60, 2)?);
    let field = |i: usize, at, size| number(bytes, headers + i * 64 + at, size);
    let names = field(number(bytes, 62, 2)?, 24, 8)?;
    (0..count).find_map(|i| {
        let text = bytes.get(names + field(i, 0, 4)?..)?;
        let is_it = text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0);
        // One without contents is in a file of debug information.
        (is_it && field(i, 4, 4)? != 8).then_some(Section {
            address: field(i, 16, 8)?,
            offset: field(i, 24, 8)?,
            size: field(i, 32, 8)?,
        })
    })
}

impl File {
    /// `None` if there is no such file, or it has no unwind tables.
    pub fn open(path: &str) -> Option<File> {
        let bytes = std::fs::read(path).ok()?;
        let index = section(&bytes, ".eh_frame_hdr")?;
        let entries = section(&bytes, ".eh_frame")?;
        Some(File {
            bytes,
            index,
            entries,
        })
    }

    fn contents(&self, of: Section) -> &[u8] {
        &self.bytes[of.offset..of.offset + of.size]
    }

    /// `.eh_frame`, and where it lies when the file is loaded.
    pub fn entries(&self) -> (&[u8], usize) {
        (self.contents(self.entries), self.entries.address)
    }

    /// `.eh_frame_hdr`, and where it lies.
    pub fn index(&self) -> (&[u8], usize) {
        (self.contents(self.index), self.index.address)
    }

    pub fn table(&self) -> Table<'_> {
        table(self.index(), self.entries())
    }
}

/// Tables whose parts lie at these addresses.
pub fn table<'a>(index: (&'a [u8], usize), entries: (&'a [u8], usize)) -> Table<'a> {
    Table {
        index: Bytes::of(index.0, index.1),
        header: index.1,
        entries: Bytes::of(entries.0, entries.1),
    }
}
