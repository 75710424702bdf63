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

impl Elf {
    /// Reads `file`. The error says in a few words why it is not an ELF file for this machine.
    pub(crate) fn read(file: &Path) -> Result<Elf, String> {
        let data = std::fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
        Elf::parse(&data)
    }

    fn parse(data: &[u8]) -> Result<Elf, String> {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => {}
            Ok(FileKind::Elf32) => {
                return Err("is a 32-bit file; only 64-bit files are supported".into());
            }
            _ => return Err("is not an ELF file".into()),
        }
        let broken = |error: object::Error| format!("is a damaged ELF file: {error}");
        let file = object::File::parse(data).map_err(broken)?;
        if file.architecture() != native_architecture() {
            let theirs = file.architecture();
            return Err(format!(
                "is built for {theirs:?}, this machine is {}",
                std::env::consts::ARCH
            ));
        }
        let header = elf::FileHeader64::<Endianness>::parse(data).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        let mut interpreter = None;
        let mut marked_as_program = false;
        for segment in header.program_headers(endian, data).map_err(broken)? {
            if let Some(path) = segment.interpreter(endian, data).map_err(broken)? {
                interpreter = Some(String::from_utf8_lossy(path).into_owned());
            }
            for entry in segment
                .dynamic(endian, data)
                .map_err(broken)?
                .unwrap_or_default()
            {
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
        assert!(Elf::parse(&data).unwrap_err().contains("32-bit"));
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
        assert!(Elf::parse(&data).unwrap_err().contains("this machine is"));
    }

    #[test]
    fn text_and_truncated_files_are_rejected() {
        assert!(
            Elf::parse(b"#!/bin/sh\n")
                .unwrap_err()
                .contains("not an ELF file")
        );
        assert!(Elf::parse(b"").is_err());
        assert!(Elf::parse(&own()[..40]).is_err());
    }
}
