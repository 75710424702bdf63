//! Where Mallard's root block lies in a process: a note of the program or library that it is part
//! of says so.
//!
//! The files are read, each once as long as it is the same, so reading all processes costs little.
//! If a file is gone or replaced, the process's memory has the same headers.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use mallard_procfs::mapping::{self, Mapping};

use crate::memory::image;
use crate::memory::process::read as read_memory;

/// The device and the inode of a file.
type FileKey = ((u32, u32), u64);

/// The distances of the root from the beginnings of images, by file.
#[derive(Debug, Default)]
pub struct Images(HashMap<FileKey, Option<u64>>);

impl Images {
    /// The root's address in a process; `None` if it does not run on Mallard.
    ///
    /// # Errors
    /// The system does not let the mappings be read.
    pub fn root(&mut self, pid: u32) -> io::Result<Option<u64>> {
        // The beginning of a file has its headers.
        let files = mapping::all(pid)?.into_iter();
        let images = files.filter(|mapping| mapping.is_file() && mapping.offset == 0);
        let roots = images.filter_map(|mapping| {
            let distance = self.distance(pid, &mapping)?;
            Some(mapping.start.wrapping_add(distance))
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
    let path = mallard_procfs::path(pid, &format!("root{}", mapping.path));
    let is_same = |file: &File| {
        let about = file.metadata();
        about.is_ok_and(|about| about.is_file() && about.ino() == mapping.inode)
    };
    if !mapping.is_deleted
        && let Some(file) = File::open(path).ok().filter(is_same)
    {
        let copy = |at: u64, into: &mut [u8]| file.read_exact_at(into, at).ok();
        return Some(image::read_file(&copy).and_then(|image| image.root));
    }
    let mut byte = [0];
    read_memory(pid, mapping.start, &mut byte).ok()?;
    let copy =
        |at: u64, into: &mut [u8]| read_memory(pid, mapping.start.wrapping_add(at), into).ok();
    Some(image::read_mapped(&copy).and_then(|image| image.root))
}
