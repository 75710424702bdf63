//! The kernel's function that reads the clocks, in the object that it maps into each process.

use super::errno::KeepErrno;
use crate::sys::arch::{CLOCK_GETTIME, CLOCK_GETTIME_BYTES};
use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Sym};

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;

/// The address of `clock_gettime`.
#[cold]
#[inline(never)]
pub fn find() -> Option<usize> {
    // Where there is no such object, `getauxval` says so in `errno`.
    let _keep = KeepErrno::new();
    // SAFETY: getauxval has no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if base == 0 || cfg!(miri) {
        return None;
    }
    // SAFETY: the kernel maps a whole ELF object there, for as long as the process lives. What lies
    // between its symbols and its strings is of the object, too. If it is not all symbols, what is
    // taken for the place of a name is looked at only within the strings.
    unsafe {
        let header = &*(base as *const Elf64_Ehdr);
        let segments = (base + header.e_phoff as usize) as *const Elf64_Phdr;
        let dynamic = (0..header.e_phnum as usize)
            .map(|i| &*segments.add(i))
            .find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
        // From the addresses in the object to those in memory; the first segment is its start.
        let place = |at: u64| base.wrapping_add(at.wrapping_sub((*segments).p_vaddr) as usize);
        let (mut symbols, mut strings, mut strings_bytes) = (0, 0, 0);
        let mut entry = place(dynamic.p_vaddr) as *const [u64; 2];
        loop {
            match *entry {
                [DT_NULL, _] => break,
                [DT_SYMTAB, at] => symbols = place(at),
                [DT_STRTAB, at] => strings = place(at),
                [DT_STRSZ, bytes] => strings_bytes = bytes as usize,
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
                let at = symbol.st_name as usize;
                at + CLOCK_GETTIME_BYTES <= strings_bytes && is_clock_gettime(strings + at)
            })
            .map(|symbol| place(symbol.st_value))
    }
}

/// Whether this name is that of the kernel's `clock_gettime`. Compared with numbers within the
/// code: a string would be a constant far from all others that a small program needs.
///
/// # Safety
/// A name in the object, after which the object goes on.
#[inline]
unsafe fn is_clock_gettime(name: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        (name as *const [u8; 8]).read() == CLOCK_GETTIME[0]
            && (name as *const [u8; 8]).add(1).read() == CLOCK_GETTIME[1]
            && ((name + CLOCK_GETTIME_BYTES - 8) as *const [u8; 8]).read() == *b"gettime\0"
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
        let is_there = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } != 0;
        // An emulator's object is of another form, in which we look for nothing.
        if is_there && crate::testing::shows_memory() {
            assert!(find().is_some());
        }
        let (before, between, after) = (c_librarys(), now_ns(), c_librarys());
        assert!(before <= between && between <= after);
    }
}
