//! An ELF file, mapped into memory.
//!
//! [`Arena`] owns what outlives the reading of a file: maps and unpacked sections. Its contents
//! stay until the arena goes, so that everything that reads a module can borrow from it.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use gimli::{EndianSlice, RunTimeEndian, SectionId};
use memmap2::{Mmap, UncheckedAdvice};
use object::{Object, ObjectSection};

/// Where names are read from.
pub type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// A packed section may grow only so far.
const SECTION_BYTES_MAX: u64 = 8 << 30;

#[derive(Default)]
pub struct Arena {
    maps: typed_arena::Arena<Mmap>,
    unpacked: typed_arena::Arena<Vec<u8>>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("not an ELF file: {0}")]
    Elf(#[from] object::Error),
}

pub struct File<'a> {
    pub elf: object::File<'a>,
    pub bytes: &'a [u8],
    /// None for an image in memory.
    map: Option<&'a Mmap>,
    arena: &'a Arena,
}

impl<'a> File<'a> {
    pub fn open(path: &Path, arena: &'a Arena) -> Result<File<'a>, Error> {
        // The path comes from a profile. Opening a pipe would wait for its other end.
        if !fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("it is not a regular file").into());
        }
        let file = fs::File::open(path)?;
        // SAFETY: the bytes are only read, and checked at every use. Programs and libraries are
        // replaced by renaming, not by writing into them, since processes map them too.
        let map = unsafe { Mmap::map(&file)? };
        let map: &Mmap = arena.maps.alloc(map);
        Ok(File {
            map: Some(map),
            ..File::from_bytes(map, arena)?
        })
    }

    pub fn from_bytes(bytes: &'a [u8], arena: &'a Arena) -> Result<File<'a>, object::Error> {
        Ok(File {
            elf: object::File::parse(bytes)?,
            bytes,
            map: None,
            arena,
        })
    }

    /// The build id in hexadecimal; empty if the file has none.
    pub fn build_id(&self) -> String {
        let bytes = self.elf.build_id().ok().flatten().unwrap_or_default();
        hexadecimal(bytes)
    }

    pub fn has_dwarf(&self) -> bool {
        self.has_section(".debug_info") || self.has_section(".debug_line")
    }

    /// Whether the section is there and has contents: a separate debug file lists the sections of
    /// the program without them.
    fn has_section(&self, name: &str) -> bool {
        let section = self.elf.section_by_name(name);
        section.is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
    }

    pub fn endian(&self) -> RunTimeEndian {
        if self.elf.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        }
    }

    /// A section of DWARF; empty if the file lacks it.
    pub fn dwarf_section(&self, name: Option<&str>) -> Result<Slice<'a>, gimli::Error> {
        let bytes = name.and_then(|name| self.section(name)).unwrap_or_default();
        Ok(EndianSlice::new(bytes, self.endian()))
    }

    fn section(&self, name: &str) -> Option<&'a [u8]> {
        let data = self.elf.section_by_name(name)?.compressed_data().ok()?;
        if data.uncompressed_size > SECTION_BYTES_MAX {
            return None;
        }
        match data.decompress().ok()? {
            Cow::Borrowed(bytes) => Some(bytes),
            Cow::Owned(bytes) => Some(self.arena.unpacked.alloc(bytes)),
        }
    }

    /// Gives back the memory of what was read so far, such as packed sections that are unpacked
    /// now. It is read from the file again when it is needed.
    pub fn forget_pages(&self) {
        if let Some(map) = self.map {
            // SAFETY: the map is of a file and is never written, so its pages come back as they
            // are.
            let forgotten = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
            // Without this, more memory is in use for a while.
            let _ = forgotten;
        }
    }

    pub fn arena(&self) -> &'a Arena {
        self.arena
    }
}

/// The sections that functions, inlined functions and lines are read from. The others, of variables
/// and types, are as large again.
pub const NEEDED_SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build id of the file at a path, in hexadecimal; none if it has none or cannot be read.
pub fn build_id_of(path: &Path) -> Option<String> {
    let arena = Arena::default();
    let build_id = File::open(path, &arena).ok()?.build_id();
    Some(build_id).filter(|id| !id.is_empty())
}
