//! The kernel's function that reads the clocks, in the object that it maps into each process.

use core::ffi::CStr;
use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Sym};

#[cfg(target_arch = "x86_64")]
const NAME: &CStr = c"__vdso_clock_gettime";
#[cfg(not(target_arch = "x86_64"))]
const NAME: &CStr = c"__kernel_clock_gettime";

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// The address of `clock_gettime`.
#[cold]
#[inline(never)]
pub fn find() -> Option<usize> {
    // SAFETY: getauxval has no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if base == 0 || cfg!(miri) {
        return None;
    }
    // SAFETY: the kernel maps a whole ELF object there, for as long as the process lives, and its
    // strings follow its symbols.
    unsafe {
        let header = &*(base as *const Elf64_Ehdr);
        let segments = (base + header.e_phoff as usize) as *const Elf64_Phdr;
        let of_type = |kind| {
            (0..header.e_phnum as usize)
                .map(|i| &*segments.add(i))
                .find(|segment| segment.p_type == kind)
        };
        let (code, dynamic) = (of_type(libc::PT_LOAD)?, of_type(libc::PT_DYNAMIC)?);
        // From the addresses in the object to those in memory; it starts with its first segment.
        let place = |at: u64| base.wrapping_add(at.wrapping_sub(code.p_vaddr) as usize);
        let (mut symbols, mut strings) = (0, 0);
        let mut entry = place(dynamic.p_vaddr) as *const [u64; 2];
        loop {
            match *entry {
                [DT_NULL, _] => break,
                [DT_SYMTAB, at] => symbols = place(at),
                [DT_STRTAB, at] => strings = place(at),
                _ => {}
            }
            entry = entry.add(1);
        }
        if symbols == 0 {
            return None;
        }
        (symbols..strings)
            .step_by(size_of::<Elf64_Sym>())
            .map(|at| &*(at as *const Elf64_Sym))
            .find(|symbol| {
                let name = (strings + symbol.st_name as usize) as *const _;
                symbol.st_value != 0 && CStr::from_ptr(name) == NAME
            })
            .map(|symbol| place(symbol.st_value))
    }
}
