//! The properties of an ELF file that decide whether it can be preloaded, or take a preloaded
//! library.

use std::path::Path;

use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionTable, Sym};
use object::{Architecture, Endianness, FileKind, Object, ObjectKind, ObjectSymbol, elf};

type Header = elf::FileHeader64<Endianness>;

/// The properties of one ELF file for this machine.
#[derive(Debug)]
pub(crate) struct Elf {
    /// The loader that the file requests; none for a statically linked program.
    pub(crate) interpreter: Option<String>,
    /// Whether it can be loaded as a library or run as a program, unlike an object file.
    pub(crate) loadable: bool,
    /// Whether it is a library: it can be loaded at any address and is not marked as a program.
    pub(crate) library: bool,
    /// The libraries that it names.
    pub(crate) needed: Vec<String>,
    /// The versions that it needs of other libraries.
    pub(crate) wants: Vec<Want>,
    /// The versions that it has for others.
    pub(crate) has: Vec<String>,
    /// The oldest kernel that runs it, if it says so.
    pub(crate) kernel: Option<[u32; 3]>,
    /// The functions that it exports.
    defined: Vec<String>,
}

/// A version that a file needs of a library: without it, the loader refuses the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Want {
    /// The library, such as `libc.so.6`.
    pub(crate) file: String,
    /// The version, such as `GLIBC_2.34`.
    pub(crate) version: String,
    /// A function of that version that the file calls.
    pub(crate) function: Option<String>,
}

/// Why a file is not an ELF file for this machine, in a few words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotElf {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("is not an ELF file")]
    OtherFormat,
    #[error("is a 32-bit file; only 64-bit files are supported")]
    Narrow,
    #[error("is a damaged ELF file: {0}")]
    Damaged(#[from] object::Error),
    #[error(
        "is for {}, and this machine is {arch}: take its build for {arch}", name_of(*.0),
        arch = std::env::consts::ARCH
    )]
    OtherMachine(Architecture),
}

impl Elf {
    pub(crate) fn read(file: &Path) -> Result<Elf, NotElf> {
        Elf::parse(&std::fs::read(file)?)
    }

    pub(crate) fn parse(data: &[u8]) -> Result<Elf, NotElf> {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => {}
            Ok(FileKind::Elf32) => return Err(NotElf::Narrow),
            _ => return Err(NotElf::OtherFormat),
        }
        let file = object::File::parse(data)?;
        if file.architecture() != native_architecture() {
            return Err(NotElf::OtherMachine(file.architecture()));
        }
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let (wants, has) = versions(&sections, endian, data)?;
        let mut interpreter = None;
        let mut marked_as_program = false;
        let mut kernel = None;
        for segment in header.program_headers(endian, data)? {
            if let Some(path) = segment.interpreter(endian, data)? {
                interpreter = Some(text(path));
            }
            if let Some(notes) = segment.notes(endian, data)? {
                kernel = kernel.or(oldest_kernel(notes));
            }
            for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
                marked_as_program |= entry.tag(endian) == elf::DT_FLAGS_1
                    && entry.val(endian) & elf::DF_1_PIE.0 != 0;
            }
        }
        let defined = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
            .collect();
        Ok(Elf {
            interpreter,
            needed: needed(&sections, endian, data)?,
            wants,
            has,
            kernel,
            loadable: matches!(file.kind(), ObjectKind::Dynamic | ObjectKind::Executable),
            library: file.kind() == ObjectKind::Dynamic && !marked_as_program,
            defined,
        })
    }

    /// Whether the file exports the function `name`.
    pub(crate) fn defines(&self, name: &str) -> bool {
        self.defined.iter().any(|defined| defined == name)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The libraries that a file names.
fn needed(
    sections: &SectionTable<'_, Header>,
    endian: Endianness,
    data: &[u8],
) -> Result<Vec<String>, object::Error> {
    let Some((entries, link)) = sections.dynamic(endian, data)? else {
        return Ok(Vec::new());
    };
    let strings = sections.strings(endian, data, link)?;
    let needed = (entries.iter()).filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
    needed
        .map(|entry| Ok(text(entry.string(endian, strings)?)))
        .collect()
}

/// The versions that a file needs of others, and those that it has for others.
fn versions(
    sections: &SectionTable<'_, Header>,
    endian: Endianness,
    data: &[u8],
) -> Result<(Vec<Want>, Vec<String>), object::Error> {
    let (mut wants, mut has) = (Vec::new(), Vec::new());
    if let Some((mut files, link)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        let of_symbols = sections
            .gnu_versym(endian, data)?
            .map_or(&[][..], |it| it.0);
        while let Some((file, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                // The loader does without a version that only weak references need.
                if version.vna_flags.get(endian).0 & elf::VER_FLG_WEAK.0 != 0 {
                    continue;
                }
                let index = version.vna_other.get(endian);
                let caller = (symbols.iter().zip(of_symbols))
                    .find(|(_, of_symbol)| of_symbol.0.get(endian).index() == index);
                let function = caller
                    .map(|(symbol, _)| symbol.name(endian, symbols.strings()))
                    .transpose()?;
                wants.push(Want {
                    file: text(file.file(endian, strings)?),
                    version: text(version.name(endian, strings)?),
                    function: function.map(text),
                });
            }
        }
    }
    if let Some((mut versions, link)) = sections.gnu_verdef(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((_, mut names)) = versions.next()? {
            // The first name is the version's own; the others are its parents'.
            if let Some(name) = names.next()? {
                has.push(text(name.name(endian, strings)?));
            }
        }
    }
    Ok((wants, has))
}

/// The kernel of the note that linkers of GNU systems put into programs.
fn oldest_kernel(notes: object::read::elf::NoteIterator<'_, Header>) -> Option<[u32; 3]> {
    let endian = Endianness::default();
    for note in notes.flatten() {
        let words: Vec<u32> = (note.desc().chunks_exact(4))
            .map(|word| u32::from_ne_bytes(word.try_into().expect("a chunk of four")))
            .collect();
        if let (elf::NT_GNU_ABI_TAG, b"GNU", &[elf::ELF_NOTE_OS_LINUX, major, minor, patch]) =
            (note.n_type(endian), note.name(), &words[..])
        {
            return Some([major, minor, patch]);
        }
    }
    None
}

/// An architecture in the words of `std::env::consts::ARCH`, which names this machine's.
fn name_of(architecture: Architecture) -> String {
    match architecture {
        Architecture::Unknown => "another architecture".to_owned(),
        known => format!("{known:?}").to_lowercase(),
    }
}

fn native_architecture() -> Architecture {
    match std::env::consts::ARCH {
        "x86_64" => Architecture::X86_64,
        "aarch64" => Architecture::Aarch64,
        "riscv64" => Architecture::Riscv64,
        "loongarch64" => Architecture::LoongArch64,
        "powerpc64" => Architecture::PowerPc64,
        "s390x" => Architecture::S390x,
        _ => Architecture::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own program, which is an ELF file for this machine.
    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_program_is_parsed() {
        let elf = Elf::parse(&own()).unwrap();
        assert!(elf.loadable);
        assert!(!elf.library);
        assert!(elf.interpreter.unwrap().contains("ld"));
    }

    #[test]
    fn the_carried_library_is_a_shared_object_without_a_loader() {
        let elf = Elf::parse(crate::cache::files::LIBRARY).unwrap();
        assert!(elf.library);
        assert_eq!(elf.interpreter, None);
    }

    #[test]
    fn a_32_bit_file_is_named_as_such() {
        let mut data = own();
        data[4] = 1;
        assert!(matches!(Elf::parse(&data), Err(NotElf::Narrow)));
    }

    #[test]
    fn another_machine_s_file_is_named_as_such() {
        let mut data = own();
        let other = if cfg!(target_arch = "x86_64") {
            elf::EM_AARCH64
        } else {
            elf::EM_X86_64
        };
        data[18..20].copy_from_slice(&other.0.to_le_bytes());
        assert!(matches!(Elf::parse(&data), Err(NotElf::OtherMachine(_))));
    }

    #[test]
    fn text_and_truncated_files_are_rejected() {
        let script = Elf::parse(b"#!/bin/sh\n");
        assert!(matches!(script, Err(NotElf::OtherFormat)));
        assert!(Elf::parse(b"").is_err());
        assert!(Elf::parse(&own()[..40]).is_err());
    }
}
