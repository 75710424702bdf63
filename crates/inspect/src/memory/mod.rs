//! Memory of another process, running or dead, by address.
//!
//! [`process`] reads a running one, [`core`] a core file; [`image`] finds the notes of programs and
//! libraries in it, [`heap`] the block at an address. The process may be a hostile one and a core
//! any file: reading takes bounded memory.

pub mod core;
pub mod heap;
pub mod image;
pub mod process;

use mallard_procfs::mapping::Mapping;

/// Bytes of the smallest page that a machine has. Pages of others are whole multiples.
pub const PAGE_BYTES_MIN: u64 = 4096;
/// Bytes of the largest, huge pages aside.
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the header of an ELF file and of one of a segment.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

/// The memory could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no memory can be read at {at:#x}")]
pub struct Fault {
    pub at: u64,
}

/// A range of addresses to copy from, and the copy.
pub struct Piece<'a> {
    pub at: u64,
    pub into: &'a mut [u8],
}

/// What can be copied by address.
pub trait Memory {
    /// Copies the pieces, one after the other, each whole.
    ///
    /// # Errors
    /// One of the pieces cannot be read.
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault>;

    /// The most bytes that lists of records may have. A damaged list has no other end.
    fn most_bytes(&self) -> u64;

    /// Whether the owner may write at the same time.
    fn is_running(&self) -> bool;

    /// Bytes of a page of the machine that the owner runs on, or ran on.
    fn page_bytes(&self) -> u64;

    /// Copies one piece.
    ///
    /// # Errors
    /// It cannot be read.
    fn copy(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.read(&mut [Piece { at, into }])
    }
}

/// Number fields of a copied record. Beyond its end there are zeros.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let field = at.checked_add(N).and_then(|end| self.0.get(at..end));
        field.map_or([0; N], |field| {
            field.try_into().expect("it has this length")
        })
    }

    pub fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    pub fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    pub fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
}

/// A mapping of any kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapped {
    pub start: u64,
    pub limit: u64,
    /// The place of `start` in the file.
    pub file_offset: u64,
    /// Empty for memory without a file.
    pub path: String,
    /// Whether the file was deleted or replaced while the process ran.
    pub deleted: bool,
    pub executable: bool,
}

impl From<Mapping> for Mapped {
    fn from(mapping: Mapping) -> Mapped {
        Mapped {
            start: mapping.start,
            limit: mapping.end,
            file_offset: mapping.offset,
            path: mapping.path,
            deleted: mapping.is_deleted,
            executable: mapping.is_executable,
        }
    }
}

impl Mapped {
    /// Whether an image may begin here: a file's first byte, or the kernel's own code.
    pub fn begins_image(&self) -> bool {
        let is_file = !self.path.is_empty() && !self.path.starts_with('[');
        (is_file && self.file_offset == 0) || self.path == "[vdso]"
    }
}
