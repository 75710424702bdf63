//! Reads files of `/proc` and `/sys`, which have no size and may be long, in pieces.

use crate::sys::errno::{self, KeepErrno};
use core::ffi::CStr;

/// Passes a file's contents on, in pieces of any length up to the buffer's; returns whether all of
/// it was read.
pub fn read(path: &CStr, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> bool {
    read_while(path, buffer, |piece| {
        each(piece);
        true
    })
}

/// The start of a file, in a buffer; empty if it cannot be read.
#[inline(never)]
pub fn start_of<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    read_while(path, buffer, |piece| {
        len = piece.len();
        false
    });
    buffer.get(..len).unwrap_or(&[])
}

/// Like [`read`], but ends where `each` returns false.
fn read_while(path: &CStr, buffer: &mut [u8], mut each: impl FnMut(&[u8]) -> bool) -> bool {
    let _keep = KeepErrno::new();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string. These are plain system calls because the C library's are
    // cancellation points.
    let file = unsafe {
        asked!(Open or -1, libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0))
    };
    if file < 0 {
        return false;
    }
    let is_whole = loop {
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe {
            asked!(
                Read or -1,
                libc::syscall(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len())
            )
        };
        match usize::try_from(got) {
            Ok(0) => break true,
            Ok(got) => {
                if !each(&buffer[..got.min(buffer.len())]) {
                    break false;
                }
            }
            Err(_) if errno::get() == libc::EINTR => {}
            Err(_) => break false,
        }
    };
    // SAFETY: the descriptor was opened above and is used nowhere else.
    unsafe { asked!(Descriptor or -1, libc::syscall(libc::SYS_close, file)) };
    is_whole
}

/// The number that a text is; `None` if it is none, or too large.
#[inline(never)]
pub fn number(text: &[u8], radix: u32) -> Option<usize> {
    let mut sum: usize = 0;
    for &byte in text {
        let digit = char::from(byte).to_digit(radix)? as usize;
        sum = sum.checked_mul(radix as usize)?.checked_add(digit)?;
    }
    (!text.is_empty()).then_some(sum)
}

/// A range of this process's memory that has one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    pub start: usize,
    pub end: usize,
    pub is_readable: bool,
    pub is_code: bool,
    /// Where it begins in its file, and the file's number; 0 without a file.
    pub offset: usize,
    pub inode: usize,
    /// The file's name, or one in brackets; empty for memory without a file.
    pub name: &'a [u8],
}

/// Like [`read`], of the kernel's list of this process's mappings. It is asked for the calling
/// thread's: the first thread has none after a `pthread_exit` in `main`. Before Linux 3.17 there is
/// only the first thread's.
pub fn read_mappings(buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> bool {
    let paths = [c"/proc/thread-self/maps", c"/proc/self/maps"];
    // Of a list that cannot be read to its end, a part would be told twice.
    let mut is_told = false;
    paths.into_iter().any(|path| {
        !is_told
            && read(path, buffer, |piece| {
                is_told = true;
                each(piece);
            })
    })
}

/// The parts of a path, one after the other; `None` if there is no room.
#[inline(never)]
pub fn joined<'a>(parts: [&[u8]; 3], room: &'a mut [u8]) -> Option<&'a CStr> {
    let mut len = 0;
    for part in parts {
        room.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    *room.get_mut(len)? = 0;
    CStr::from_bytes_until_nul(room).ok()
}

/// Room for the digits of any number.
pub const DIGITS: usize = 20;

/// The number in decimal.
pub fn digits(mut n: usize, room: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &room[at..];
        }
    }
}

/// Bytes of a line of that list: of a longer one, the end of the name is left out.
const LINE_MAX: usize = 640;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 512;

/// Calls `each` with the mappings of this process in the order of their addresses; returns whether
/// all were read.
#[inline(never)]
pub fn mappings(each: &mut dyn FnMut(&Mapping<'_>)) -> bool {
    let (mut line, mut len) = ([0; LINE_MAX], 0);
    read_mappings(&mut [0; PIECE_BYTES], |piece| {
        for &byte in piece {
            if byte == b'\n' {
                let text = line.get(..core::mem::take(&mut len)).unwrap_or(&[]);
                if let Some(mapping) = mapping(text) {
                    each(&mapping);
                }
            } else if let Some(place) = line.get_mut(len) {
                *place = byte;
                len += 1;
            }
        }
    })
}

/// Reads `start-end rwxp offset device inode name`.
fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let mut rest = line;
    let (range, rights) = (word(&mut rest)?, word(&mut rest)?);
    let offset = number(word(&mut rest)?, 16)?;
    let _device = word(&mut rest)?;
    let inode = number(word(&mut rest)?, 10)?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    Some(Mapping {
        start: number(range.get(..dash)?, 16)?,
        end: number(range.get(dash + 1..)?, 16)?,
        is_readable: rights.first() == Some(&b'r'),
        is_code: rights.get(2) == Some(&b'x'),
        offset,
        inode,
        name: rest.trim_ascii_start(),
    })
}

/// Takes the next word off a text.
#[inline(never)]
fn word<'a>(text: &mut &'a [u8]) -> Option<&'a [u8]> {
    let from = text.trim_ascii_start();
    let end = from.iter().position(|&byte| byte == b' ');
    let (word, rest) = from.split_at_checked(end.unwrap_or(from.len()))?;
    *text = rest;
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = b"7f00-7f1000 r-xp 00001000 08:01 42   /lib/a name.so (deleted)";
        let expected = Mapping {
            start: 0x7f00,
            end: 0x7f_1000,
            is_readable: true,
            is_code: true,
            offset: 0x1000,
            inode: 42,
            name: b"/lib/a name.so (deleted)",
        };
        assert_eq!(mapping(line), Some(expected));
        let hidden = mapping(b"1-2 ---p 0 00:00 0").unwrap();
        assert!(!hidden.is_code && !hidden.is_readable && hidden.name.is_empty());
        for bad in [
            &b""[..],
            b"1-2",
            b"12 r-xp 0 0 0",
            b"1-zz r-xp 0 0 0 ",
            b"x-2 r-xp 0 00:00 0",
        ] {
            assert_eq!(mapping(bad), None);
        }
    }

    #[test]
    fn the_code_and_the_data_of_this_program_are_mapped() {
        // A mapping that another test grows between two reads is listed twice.
        crate::testing::own_process!();
        if !crate::testing::shows_memory() {
            return;
        }
        static HERE: u8 = 1;
        let (code, data) = (mapping as *const () as usize, (&raw const HERE).addr());
        let (mut found, mut last) = (Vec::new(), 0);
        assert!(mappings(&mut |mapping| {
            assert!(last <= mapping.start && mapping.start < mapping.end);
            last = mapping.end;
            for at in [code, data] {
                if (mapping.start..mapping.end).contains(&at) {
                    found.push((mapping.is_code, mapping.inode));
                }
            }
        }));
        let [a, b] = found[..] else {
            panic!("{found:?}")
        };
        assert!(a.0 != b.0 && a.1 == b.1 && a.1 != 0, "{found:?}");
    }

    #[test]
    fn a_file_is_read_to_its_end_and_errno_stays() {
        errno::set(7);
        let mut text: Vec<u8> = Vec::new();
        assert!(read(c"/proc/self/cmdline", &mut [0; 5], |piece| text
            .extend(piece)));
        assert_eq!(text, std::fs::read("/proc/self/cmdline").unwrap());
        assert!(!read(c"/proc/no/such/file", &mut [0; 5], |_| panic!(
            "nothing"
        )));
        assert_eq!(start_of(c"/proc/self/cmdline", &mut [0; 5]), &text[..5]);
        assert_eq!(start_of(c"/proc/no/such/file", &mut [0; 5]), b"");
        assert_eq!(errno::get(), 7);
    }
}
