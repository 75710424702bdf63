//! The properties of an ELF file that decide whether it can be preloaded, or take a preloaded
//! library.

use std::path::Path;

use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Architecture, Endianness, FileKind, Object, ObjectKind, ObjectSymbol, elf};

/// The properties of one ELF file for this machine.
#[derive(Debug)]
pub(crate) struct Elf {
    /// The loader that the file requests; none for a statically linked program.
    pub(crate) interpreter: Option<String>,
    /// Whether it can be loaded as a library or run as a program, unlike an object file.
    pub(crate) loadable: bool,
    /// Whether it is a library: it can be loaded at any address and is not marked as a program.
    pub(crate) library: bool,
    /// The functions that it exports.
    defined: Vec<String>,
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
    #[error("is built for {0:?}, this machine is {arch}", arch = std::env::consts::ARCH)]
    OtherMachine(Architecture),
}

impl Elf {
    pub(crate) fn read(file: &Path) -> Result<Elf, NotElf> {
        Elf::parse(&std::fs::read(file)?)
    }

    fn parse(data: &[u8]) -> Result<Elf, NotElf> {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => {}
            Ok(FileKind::Elf32) => return Err(NotElf::Narrow),
            _ => return Err(NotElf::OtherFormat),
        }
        let file = object::File::parse(data)?;
        if file.architecture() != native_architecture() {
            return Err(NotElf::OtherMachine(file.architecture()));
        }
        let header = elf::FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let mut interpreter = None;
        let mut marked_as_program = false;
        for segment in header.program_headers(endian, data)? {
            if let Some(path) = segment.interpreter(endian, data)? {
                interpreter = Some(String::from_utf8_lossy(path).into_owned());
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
