//! Where Mallard's root block lies in a process: a note of the program or library that it is part
//! of says so.
//!
//! The files are read, each once as long as it is the same, so that a look at all processes costs
//! little; where a file is gone or replaced, the process's memory has the same headers.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::process;

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SEGMENTS_MAX: usize = 64;
/// Bytes of notes that are looked at.
const NOTES_MAX: u64 = 64 * 1024;
const PAGE: u64 = 4096;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// The type of the note of Mallard's.
const NT_ROOT: u32 = 1;
/// What the name of a file that was deleted or replaced ends with.
const DELETED: &str = " (deleted)";

/// A mapping of the beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub at: u64,
    pub device: u64,
    pub inode: u64,
    pub path: String,
}

/// The mappings in `/proc/PID/maps` of beginnings of files.
pub fn mappings(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (at, _) = fields.next()?.split_once('-')?;
    let (_, offset, device, inode) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    let path = fields.next()?.trim_start();
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let is_image = hex(offset)? == 0 && path.starts_with('/');
    is_image.then_some(Mapping {
        at: hex(at)?,
        device: libc::makedev(hex(major)? as u32, hex(minor)? as u32),
        inode: inode.parse().ok()?,
        path: path.to_owned(),
    })
}

/// The distances of the root from the beginnings of images, by file.
#[derive(Debug, Default)]
pub struct Images(HashMap<(u64, u64), Option<u64>>);

impl Images {
    /// The root's address in a process; `None` if it does not run on Mallard.
    ///
    /// # Errors
    /// The system does not let the mappings be read.
    pub fn root(&mut self, pid: u32) -> io::Result<Option<u64>> {
        let maps = std::fs::read_to_string(process::path(pid, "maps"))?;
        let roots = mappings(&maps).into_iter().filter_map(|mapping| {
            let distance = self.distance(pid, &mapping)?;
            Some(mapping.at.wrapping_add(distance))
        });
        // A library that was preloaded serves, though the program has Mallard inside, too; which of
        // both is only told by which has a root that says something.
        let mut roots: Vec<u64> = roots.collect();
        if roots.len() > 1 {
            roots.sort_by_key(|&root| read_memory(pid, root, &mut [0; 8]).is_err());
            let is_used = |&root: &u64| {
                let mut word = [0; 8];
                read_memory(pid, root, &mut word).is_ok() && word != [0; 8]
            };
            return Ok(roots
                .iter()
                .copied()
                .find(is_used)
                .or(roots.first().copied()));
        }
        Ok(roots.first().copied())
    }

    fn distance(&mut self, pid: u32, mapping: &Mapping) -> Option<u64> {
        let key = (mapping.device, mapping.inode);
        if let Some(&known) = self.0.get(&key) {
            return known;
        }
        let found = look(pid, mapping);
        if let Some(known) = found {
            self.0.insert(key, known);
        }
        found.flatten()
    }

    /// Forgets files when there are very many, so that a long watch stays small.
    pub fn limit(&mut self) {
        const MOST: usize = 100_000;
        if self.0.len() > MOST {
            self.0.clear();
        }
    }
}

/// The root's distance in a file, if it is one of ours; `None` if the file cannot be read now.
fn look(pid: u32, mapping: &Mapping) -> Option<Option<u64>> {
    let path = process::path(pid, &format!("root{}", mapping.path));
    let is_same = |file: &File| {
        let about = file.metadata();
        about.is_ok_and(|about| about.is_file() && about.ino() == mapping.inode)
    };
    if !mapping.path.ends_with(DELETED)
        && let Some(file) = File::open(path).ok().filter(is_same)
    {
        let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at);
        return Some(root_in(&read, false));
    }
    let mut byte = [0];
    read_memory(pid, mapping.at, &mut byte).ok()?;
    let read = |at: u64, into: &mut [u8]| read_memory(pid, mapping.at.wrapping_add(at), into);
    Some(root_in(&read, true))
}

type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> io::Result<()>;

/// The distance of the root from an image's first byte, by its notes. `read` reads its file, or if
/// `is_mapped` its memory.
fn root_in(read: Read<'_>, is_mapped: bool) -> Option<u64> {
    let mut header = [0; HEADER];
    read(0, &mut header).ok()?;
    // 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let count = (number(&header, 56, 2) as usize).min(SEGMENTS_MAX);
    let mut table = vec![0; count * SEGMENT];
    read(number(&header, 32, 8), &mut table).ok()?;
    let segments = || table.chunks_exact(SEGMENT);
    let first = segments().find(|s| number(s, 0, 4) as u32 == PT_LOAD && number(s, 8, 8) < PAGE)?;
    let base = number(first, 16, 8) & !(PAGE - 1);
    segments()
        .filter(|s| number(s, 0, 4) as u32 == PT_NOTE)
        .find_map(|s| {
            // Addresses count from the first byte of the image.
            let address = number(s, 16, 8).wrapping_sub(base);
            let place = if is_mapped { address } else { number(s, 8, 8) };
            let mut notes = vec![0; number(s, 32, 8).min(NOTES_MAX) as usize];
            read(place, &mut notes).ok()?;
            let (at, distance) = root_note(&notes)?;
            Some(address.wrapping_add(at as u64).wrapping_add(distance))
        })
}

/// The text of Mallard's note, a distance, and where it lies among the notes.
fn root_note(notes: &[u8]) -> Option<(usize, u64)> {
    const HEAD: usize = 12;
    const OWNER: &[u8] = b"Mallard\0";
    let mut at = 0;
    while notes.len().saturating_sub(at) >= HEAD {
        let rest = &notes[at..];
        let (owner, text) = (number(rest, 0, 4) as usize, number(rest, 4, 4) as usize);
        let from = HEAD + owner.next_multiple_of(4);
        if number(rest, 8, 4) as u32 == NT_ROOT
            && text == 8
            && rest.get(HEAD..HEAD + owner) == Some(OWNER)
            && rest.len() >= from + text
        {
            return Some((at + from, number(rest, from, 8)));
        }
        at += from + text.next_multiple_of(4);
    }
    None
}

/// A little-endian number of some bytes; 0 beyond the end.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut number = [0; 8];
    if let Some(found) = bytes.get(at..at + width) {
        number[..width].copy_from_slice(found);
    }
    u64::from_le_bytes(number)
}

/// Reads a process's memory, all or nothing.
///
/// # Errors
/// The system refuses, or no such memory is there.
pub fn read_memory(pid: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes at most the buffer's length, and checks the other address.
    let got = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    match usize::try_from(got) {
        Ok(got) if got == into.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_files_are_found_among_mappings() {
        let maps = "\
7f10-7f20 r--p 00000000 fe:01 77                         /usr/lib/a b.so (deleted)
7f20-7f30 r-xp 00001000 fe:01 77                         /usr/lib/a b.so
7f40-7f50 rw-p 00000000 00:00 0 
7fff-8000 r-xp 00000000 00:00 0                          [vdso]
";
        let found = mappings(maps);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at, found[0].inode), (0x7f10, 77));
        assert_eq!(found[0].path, "/usr/lib/a b.so (deleted)");
    }

    #[test]
    fn damaged_notes_lead_nowhere() {
        let mut notes = Vec::new();
        for (owner, text) in [
            (&b"GNU\0"[..], &[1u8, 2, 3][..]),
            (b"Mallard\0", &[16, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            notes.extend((owner.len() as u32).to_le_bytes());
            notes.extend((text.len() as u32).to_le_bytes());
            notes.extend(1u32.to_le_bytes());
            notes.extend(owner);
            notes.extend(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(root_note(&notes), Some((40, 16)));
        for end in 0..notes.len() {
            assert_eq!(root_note(&notes[..end]), None);
        }
        assert_eq!(root_note(&[0xff; 100]), None);
    }

    #[test]
    fn memory_is_read_whole_or_not_at_all() {
        let word = 0x1234_5678_u64.to_le_bytes();
        let mut copy = [0; 8];
        let me = std::process::id();
        read_memory(me, word.as_ptr() as u64, &mut copy).unwrap();
        assert_eq!(copy, word);
        assert!(read_memory(me, 8, &mut copy).is_err());
    }
}
