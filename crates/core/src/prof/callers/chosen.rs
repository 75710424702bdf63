//! Sites that an option chooses, by names that other runs of the program have too.
//!
//! ```text
//!  server+0x1209|libparse.so+0x88d1<server+0x11f2
//! ```
//!
//! A name is that of a file, with or without its folder, and the offset in it of the address that a
//! call returns to. Behind `<` are the callers. A name gets its address when a stack first leads
//! through a module that may be its file.

use super::known::{self, Site};
use crate::prof::dump::maps::{self, Mapping};
use crate::prof::unwind::{self, Registers};
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The most sites that are chosen, and the most frames of one.
const SITES_MAX: usize = 16;
const FRAMES_MAX: usize = 4;
/// The most modules that are known to have no address of a name that is still without one.
const MODULES_MAX: usize = 64;

/// The list.
static LIST: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static LIST_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Whether all sites are chosen.
static ALL: AtomicBool = AtomicBool::new(false);
/// The addresses of the names; 0 for those that have none yet, and behind the last.
static ADDRESSES: [[AtomicUsize; FRAMES_MAX]; SITES_MAX] =
    [const { [const { AtomicUsize::new(0) }; FRAMES_MAX] }; SITES_MAX];
/// Where the modules begin that were looked at; 0 for none.
static MODULES: [AtomicUsize; MODULES_MAX] = [const { AtomicUsize::new(0) }; MODULES_MAX];

/// A return address by its file and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name<'a> {
    file: &'a [u8],
    offset: usize,
}

impl<'a> Name<'a> {
    fn of(text: &'a [u8]) -> Option<Name<'a>> {
        let plus = text.iter().rposition(|&byte| byte == b'+')?;
        let (file, rest) = (text.get(..plus)?, text.get(plus + 1..)?);
        let digits = rest.strip_prefix(b"0x").unwrap_or(rest);
        if file.is_empty() || digits.is_empty() || digits.len() > 15 {
            return None;
        }
        let mut offset = 0;
        for &digit in digits {
            offset = offset << 4 | (digit as char).to_digit(16)? as usize;
        }
        Some(Name { file, offset })
    }

    /// Whether the file is the one with this path.
    fn is_of(&self, path: &[u8]) -> bool {
        let Some(before) = path.len().checked_sub(self.file.len()) else {
            return false;
        };
        let is_whole = before == 0 || path.get(before - 1) == Some(&b'/');
        is_whole && path.get(before..) == Some(self.file)
    }
}

/// The sites of a list, each with its frames.
fn sites(list: &[u8]) -> impl Iterator<Item = [Option<Name<'_>>; FRAMES_MAX]> {
    let texts = list.split(|&byte| byte == b'|').take(SITES_MAX);
    texts.map(|text| {
        let mut frames = [None; FRAMES_MAX];
        for (frame, name) in frames.iter_mut().zip(text.split(|&byte| byte == b'<')) {
            *frame = Name::of(name);
        }
        frames
    })
}

fn list() -> &'static [u8] {
    let first = LIST.load(Ordering::Acquire);
    if first.is_null() {
        return &[];
    }
    // SAFETY: the list has this many bytes, and lives for ever.
    unsafe { core::slice::from_raw_parts(first, LIST_BYTES.load(Ordering::Relaxed)) }
}

/// Chooses the sites of a list, or with `*` all. False when memory is out, or if it has no site.
/// For one thread at a time.
#[cold]
#[inline(never)]
pub fn choose(chosen: &'static [u8]) -> bool {
    if chosen == b"*" {
        ALL.store(true, Ordering::Relaxed);
        return true;
    }
    LIST_BYTES.store(chosen.len(), Ordering::Relaxed);
    LIST.store(chosen.as_ptr().cast_mut(), Ordering::Release);
    let depth = sites(chosen)
        .map(|site| site.iter().flatten().count())
        .max();
    depth.is_some_and(|depth| depth > 0 && known::begin(depth))
}

/// Whether the site of a frame with these registers is chosen.
pub fn is_chosen(from: &Registers) -> bool {
    ALL.load(Ordering::Relaxed) || is_site_chosen(known::site(from))
}

fn is_site_chosen(site: Site) -> bool {
    known::choice(site, is_stack_chosen)
}

/// Whether a stack begins with the frames of a chosen site.
#[cold]
#[inline(never)]
fn is_stack_chosen(frames: &[usize]) -> bool {
    let new = frames
        .iter()
        .take(FRAMES_MAX)
        .filter(|&&at| is_in_new_module(at));
    if new.count() > 0 {
        let mut list = list();
        maps::each(&mut list, find_names);
    }
    let is_chosen = |site: &[AtomicUsize; FRAMES_MAX], names: &[Option<Name<'_>>; FRAMES_MAX]| {
        let mut pairs = site.iter().zip(names).enumerate();
        names[0].is_some()
            && pairs.all(|(i, (address, name))| {
                let address = address.load(Ordering::Relaxed);
                name.is_none() || address != 0 && frames.get(i) == Some(&address)
            })
    };
    let mut all = ADDRESSES.iter().zip(sites(list()));
    all.any(|(site, names)| is_chosen(site, &names))
}

/// Whether the module of an address was not looked at before. If there are too many modules, names
/// in the last ones have no address.
fn is_in_new_module(at: usize) -> bool {
    let Some(module) = unwind::modules().find(at.wrapping_sub(1)) else {
        return false;
    };
    for known in &MODULES {
        match known.load(Ordering::Relaxed) {
            start if start == module.start => return false,
            0 => {
                known.store(module.start, Ordering::Relaxed);
                return true;
            }
            _ => {}
        }
    }
    false
}

/// Gives the names in a mapping's file their addresses.
fn find_names(list: &mut &'static [u8], mapping: &Mapping<'_>) {
    let bytes = mapping.end - mapping.start;
    for (addresses, names) in ADDRESSES.iter().zip(sites(list)) {
        for (address, name) in addresses.iter().zip(names.iter().flatten()) {
            // The return address of a call may be the first one behind a mapping.
            let into = (name.offset as u64).wrapping_sub(mapping.offset);
            if into.wrapping_sub(1) < bytes && name.is_of(mapping.name) {
                address.store((mapping.start + into) as usize, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn names_are_read_and_others_are_not() {
        let name = |file, offset| Some(Name { file, offset });
        assert_eq!(Name::of(b"server+0x1f"), name(b"server", 0x1f));
        assert_eq!(
            Name::of(b"/opt/a+b/lib c.so+10"),
            name(b"/opt/a+b/lib c.so", 16)
        );
        for other in [
            &b"server"[..],
            b"+0x10",
            b"server+",
            b"server+0xg",
            b"server+0x",
            b"",
        ] {
            assert_eq!(Name::of(other), None, "{}", other.escape_ascii());
        }
        let all: Vec<_> = sites(b"a+1|b+2<c+3|<d+4").collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], [name(b"a", 1), None, None, None]);
        assert_eq!(all[1], [name(b"b", 2), name(b"c", 3), None, None]);
        assert_eq!(
            all[2][0], None,
            "a site begins with the frame of the request"
        );
    }

    #[test]
    fn a_name_fits_its_file_in_any_folder_or_in_its_own() {
        let path = b"/usr/lib/libz.so";
        for (file, fits) in [
            (&b"libz.so"[..], true),
            (b"lib/libz.so", true),
            (path, true),
            (b"z.so", false),
            (b"/opt/usr/lib/libz.so", false),
        ] {
            assert_eq!(
                Name { file, offset: 1 }.is_of(path),
                fits,
                "{}",
                file.escape_ascii()
            );
        }
    }
}
