//! The kernel's function that reads the clocks, in the object that it maps into each process.

use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Sym};

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
        let dynamic = (0..header.e_phnum as usize)
            .map(|i| &*segments.add(i))
            .find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
        // From the addresses in the object to those in memory; the first segment is its start.
        let place = |at: u64| base.wrapping_add(at.wrapping_sub((*segments).p_vaddr) as usize);
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
            .find(|symbol| is_clock_gettime(strings + symbol.st_name as usize))
            .map(|symbol| place(symbol.st_value))
    }
}

/// Whether this name is `__vdso_clock_gettime`. Compared with numbers within the code: a string
/// would be a constant far from all others that a small program needs.
///
/// # Safety
/// A name in the object, after which the object goes on.
#[inline]
unsafe fn is_clock_gettime(name: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        (name as *const [u8; 8]).read() == *b"__vdso_c"
            && (name as *const [u8; 8]).add(1).read() == *b"lock_get"
            && (name as *const [u8; 4]).add(4).read() == *b"time"
            && (name as *const u8).add(20).read() == 0
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::find;
    use crate::sys::time::now_ns;

    #[test]
    fn the_kernels_clock_is_the_c_librarys() {
        let c_librarys = || {
            let mut t = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: a valid out-pointer.
            let answer = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
            assert_eq!(answer, 0);
            t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
        };
        // SAFETY: getauxval has no preconditions.
        if unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } != 0 && cfg!(target_arch = "x86_64") {
            assert!(find().is_some());
        }
        let (before, between, after) = (c_librarys(), now_ns(), c_librarys());
        assert!(before <= between && between <= after);
    }
}
