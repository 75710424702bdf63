//! The code that is mapped in this process, for profiles: from [`proc::read_mappings`], with the
//! build id that each file has in memory.

use crate::sys::page::PAGE;
use crate::sys::{probe, proc};

/// A mapping with code.
pub struct Mapping<'a> {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    /// The file's name, or one in brackets; empty for memory without a file.
    pub name: &'a [u8],
    /// The build id of the file as it was mapped.
    pub build_id: Option<&'a [u8]>,
}

/// A file that is mapped.
struct Image {
    inode: usize,
    /// Where its first byte lies.
    base: usize,
}

/// Calls `f` with `context` and each mapping that has code, in the order of their addresses.
// A function and a context instead of a closure: its table of functions would be another word that
// the loader writes in every process.
#[inline(always)]
pub fn each<C>(context: &mut C, f: fn(&mut C, &Mapping<'_>)) {
    // SAFETY: the types differ by a reference and a pointer, which are passed alike.
    let f = unsafe { core::mem::transmute::<fn(&mut C, &Mapping<'_>), Erased>(f) };
    // SAFETY: `f` is called with the context that it is for.
    unsafe { each_with(core::ptr::from_mut(context).cast(), f) };
}

/// A function of [`each`], whatever its context is.
type Erased = unsafe fn(*mut (), &Mapping<'_>);

/// # Safety
/// `f` may be called with this context.
#[inline(never)]
unsafe fn each_with(context: *mut (), f: Erased) {
    // Where the file of the last mappings begins in memory.
    let mut image = Image { inode: 0, base: 0 };
    proc::mappings(&mut |mapped| {
        if mapped.offset == 0 {
            image = Image {
                inode: mapped.inode,
                base: mapped.start,
            };
        }
        if !mapped.is_code {
            return;
        }
        // The vdso has no file, and is an image all the same.
        let is_image =
            image.inode == mapped.inode && (mapped.inode != 0 || mapped.name == b"[vdso]");
        let build_id = is_image.then(|| build_id(image.base)).flatten();
        let mapping = Mapping {
            start: mapped.start as u64,
            end: mapped.end as u64,
            offset: mapped.offset as u64,
            name: mapped.name,
            build_id,
        };
        // SAFETY: the caller's promise.
        unsafe { f(context, &mapping) };
    });
}

/// The build id of the ELF image at `base`, read from memory.
fn build_id(base: usize) -> Option<&'static [u8]> {
    const PT_NOTE: u32 = 4;
    const NT_GNU_BUILD_ID: u32 = 3;
    /// Bytes of the file's header, and of one program header.
    const HEADER_BYTES: usize = 64;
    const PROGRAM_HEADER_BYTES: usize = 56;
    /// Segments and bytes of notes that are looked at.
    const SEGMENTS_MAX: usize = 32;
    const NOTES_BYTES_MAX: usize = 4096;
    let header = readable(base, HEADER_BYTES)?;
    if !header.starts_with(&[0x7f, b'E', b'L', b'F', 2]) {
        return None;
    }
    let at = |bytes: &[u8], offset: usize, len: usize| {
        let field = bytes.get(offset..offset + len)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0u64, |n, &byte| n << 8 | u64::from(byte)),
        )
    };
    let segments = at(header, 32, 8)? as usize;
    let count = (at(header, 56, 2)? as usize).min(SEGMENTS_MAX);
    let table = readable(base.checked_add(segments)?, count * PROGRAM_HEADER_BYTES)?;
    for segment in table.chunks_exact(PROGRAM_HEADER_BYTES) {
        if at(segment, 0, 4)? != u64::from(PT_NOTE) {
            continue;
        }
        // Where the file's first segment begins at address 0, as it does but for programs at fixed
        // addresses, whose notes are as far from their beginning in the file.
        let offset = at(segment, 8, 8)? as usize;
        let len = (at(segment, 32, 8)? as usize).min(NOTES_BYTES_MAX);
        let Some(mut notes) = readable(base.checked_add(offset)?, len) else {
            continue;
        };
        while let (Some(name), Some(desc), Some(kind)) =
            (at(notes, 0, 4), at(notes, 4, 4), at(notes, 8, 4))
        {
            let (name, desc) = (name as usize, desc as usize);
            let from = 12 + name.next_multiple_of(4);
            if kind == u64::from(NT_GNU_BUILD_ID) && notes.get(12..16) == Some(b"GNU\0") {
                return notes.get(from..from.checked_add(desc)?);
            }
            notes = notes.get(from.checked_add(desc.next_multiple_of(4))?..)?;
        }
    }
    None
}

/// These bytes of memory, if they can be read.
fn readable(at: usize, len: usize) -> Option<&'static [u8]> {
    let end = at.checked_add(len)?;
    // A probe is of eight bytes at a multiple of eight.
    let mut page = at & !7;
    while page < end {
        if !probe::is_readable(page) {
            return None;
        }
        page = (page / PAGE + 1) * PAGE;
    }
    // SAFETY: each page was readable a moment ago; images of loaded files are not unmapped while
    // a profile is written, but by a program that unloads them at this very moment.
    Some(unsafe { core::slice::from_raw_parts(at as *const u8, len) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shows_memory;

    #[test]
    fn this_program_and_the_c_library_are_found_with_their_build_ids() {
        if !shows_memory() {
            return;
        }
        let mut found = Vec::new();
        each(&mut found, |found, mapping| {
            assert!(mapping.start < mapping.end);
            let name = String::from_utf8_lossy(mapping.name).into_owned();
            found.push((name, mapping.start..mapping.end, mapping.build_id.is_some()));
        });
        let here = build_id as *const () as u64;
        let own = found.iter().find(|(_, range, _)| range.contains(&here));
        let own = own.expect("the program's own code is mapped");
        assert!(std::path::Path::new(&own.0).exists(), "{}", own.0);
        let libc = found.iter().find(|(name, ..)| name.contains("libc.so"));
        assert!(
            libc.expect("the C library is mapped").2,
            "it has a build id"
        );
    }
}
