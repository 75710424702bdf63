//! Where Mallard's root block lies in a process: a note of the program or library that it is part
//! of says so.
//!
//! The files are read, each once as long as it is the same, so that a look at all processes costs
//! little; where a file is gone or replaced, the process's memory has the same headers.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::memory::process::read as read_memory;
use crate::memory::{DELETED, image};
use crate::process;

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
        // A library that was preloaded serves, though the program has Mallard inside, too; only
        // the root that is filled in shows which of both.
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
        const FILES_MAX: usize = 100_000;
        if self.0.len() > FILES_MAX {
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
        let copy = |at: u64, into: &mut [u8]| file.read_exact_at(into, at).ok();
        return Some(image::read_file(&copy).and_then(|image| image.root));
    }
    let mut byte = [0];
    read_memory(pid, mapping.at, &mut byte).ok()?;
    let copy = |at: u64, into: &mut [u8]| read_memory(pid, mapping.at.wrapping_add(at), into).ok();
    Some(image::read_mapped(&copy).and_then(|image| image.root))
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
}
