//! The segments of the probe, read while their processes write them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::layout::{self, CLASSES, Header, KINDS, MATRIX_THREADS, Slot};

/// From one search for new segments to the next.
pub(crate) const LISTING_INTERVAL: Duration = Duration::from_millis(10);

/// One image of a process.
#[derive(Debug)]
pub struct Segment {
    mapped: *mut Header,
    file: PathBuf,
    pub pid: u32,
}

// SAFETY: all access to the mapping is through atomics.
unsafe impl Send for Segment {}

/// What a segment has counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// By kind, in the order of `layout::State`: malloc, calloc, realloc, aligned, free, sized
    /// free, query, trim.
    pub calls: [u64; KINDS],
    pub requested: u64,
    /// Live bytes by usable size, with what a forked process began with.
    pub live: i64,
    pub failed: u64,
    pub ticks_inside: u64,
    pub ticks_outside: u64,
    pub threads: u64,
    pub freed_here: u64,
    pub freed_elsewhere: u64,
    /// Requests by number of bits of their size.
    pub sizes: Vec<u64>,
    /// Lifetimes of followed blocks by number of bits of their length in ticks.
    pub lifetimes: Vec<u64>,
    pub matrix: [[u64; MATRIX_THREADS]; MATRIX_THREADS],
}

/// The memory when the process ended, and after the allocator was asked for its free memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    pub rss: u64,
    pub lazy: u64,
    pub live: i64,
    pub anonymous: u64,
    /// RSS, LazyFree and anonymous memory after the trim, if it was tried.
    pub after: Option<(u64, u64, u64)>,
    /// A `layout::Purge`.
    pub purge: u32,
}

impl Segment {
    /// Maps the file. None if the probe is still making it.
    fn open(file: &Path) -> io::Result<Option<Segment>> {
        let opened = File::options().read(true).write(true).open(file)?;
        if opened.metadata()?.len() < layout::SEGMENT_BYTES as u64 {
            return Ok(None);
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped = unsafe {
            libc::mmap(
                null_mut(),
                layout::SEGMENT_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                opened.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut segment = Segment {
            mapped: mapped.cast(),
            file: file.to_owned(),
            pid: 0,
        };
        let header = segment.header();
        if header.magic.load(Ordering::Acquire) != layout::MAGIC {
            return Ok(None);
        }
        segment.pid = header.pid.load(Ordering::Relaxed);
        Ok(Some(segment))
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped as long as this lives, and of this length.
        unsafe { &*self.mapped }
    }

    /// The slots that have been used, slot 0 first.
    pub fn slots(&self) -> &[Slot] {
        let header = self.header();
        let reserved = header.reserved.load(Ordering::Acquire) as usize;
        let used = header.used.load(Ordering::Acquire) as usize;
        let count = used.min(reserved).min(layout::SLOTS_MAX);
        // SAFETY: the slots lie there in every segment, and all their fields are atomic.
        unsafe {
            let first = self
                .mapped
                .cast::<u8>()
                .add(layout::SLOTS_AT)
                .cast::<Slot>();
            std::slice::from_raw_parts(first, count)
        }
    }

    /// The program's file.
    pub fn program(&self) -> String {
        text(&self.header().program)
    }

    /// The object that serves malloc.
    pub fn allocator(&self) -> String {
        text(&self.header().allocator)
    }

    /// Whether the process has returned from `main` or called `exit`.
    pub fn ended(&self) -> bool {
        self.header().ended.load(Ordering::Acquire) != 0
    }

    /// Live bytes now.
    pub fn live(&self) -> i64 {
        let begun_less_ended = |slot: &Slot| {
            let begun = slot.cell.begun.load(Ordering::Relaxed);
            begun.wrapping_sub(slot.cell.ended.load(Ordering::Relaxed)) as i64
        };
        let inherited = self.header().inherited.load(Ordering::Relaxed);
        self.slots()
            .iter()
            .map(begun_less_ended)
            .fold(inherited, i64::wrapping_add)
    }

    /// The most live bytes that there have been, within a step of each thread.
    pub fn peak_live(&self) -> i64 {
        let header = self.header();
        let inherited = header.inherited.load(Ordering::Relaxed);
        inherited.wrapping_add(header.peak.load(Ordering::Relaxed))
    }

    pub fn counts(&self) -> Counts {
        let header = self.header();
        let mut counts = Counts {
            live: self.live(),
            freed_here: header.freed_here.load(Ordering::Relaxed),
            freed_elsewhere: header.freed_elsewhere.load(Ordering::Relaxed),
            sizes: vec![0; CLASSES],
            lifetimes: header
                .lifetimes
                .iter()
                .map(|n| n.load(Ordering::Relaxed))
                .collect(),
            ..Counts::default()
        };
        for slot in self.slots() {
            let cell = &slot.cell;
            for (sum, calls) in counts.calls.iter_mut().zip(&cell.calls) {
                *sum += calls.load(Ordering::Relaxed);
            }
            for (sum, requests) in counts.sizes.iter_mut().zip(&slot.sizes) {
                *sum += requests.load(Ordering::Relaxed);
            }
            counts.requested += cell.requested.load(Ordering::Relaxed);
            counts.failed += cell.failed.load(Ordering::Relaxed);
            counts.ticks_inside += u64::from(cell.ticks_inside.load(Ordering::Relaxed));
            counts.ticks_outside += u64::from(cell.ticks_outside.load(Ordering::Relaxed));
            counts.threads += u64::from(cell.owners.load(Ordering::Relaxed));
        }
        for (row, counted) in counts.matrix.iter_mut().zip(&header.matrix) {
            for (sum, frees) in row.iter_mut().zip(counted) {
                *sum = u64::from(frees.load(Ordering::Relaxed));
            }
        }
        counts
    }

    /// The memory at the end; none if the process did not end by itself.
    pub fn end(&self) -> Option<End> {
        let trimmed = &self.header().trimmed;
        let stage = trimmed.stage.load(Ordering::Acquire);
        let relaxed = Ordering::Relaxed;
        (stage >= 1).then(|| End {
            rss: trimmed.rss.load(relaxed),
            lazy: trimmed.lazy.load(relaxed),
            live: trimmed.live.load(relaxed),
            anonymous: trimmed.anonymous.load(relaxed),
            after: (stage == 2).then(|| {
                (
                    trimmed.rss_after.load(relaxed),
                    trimmed.lazy_after.load(relaxed),
                    trimmed.anonymous_after.load(relaxed),
                )
            }),
            purge: trimmed.purge.load(relaxed),
        })
    }

    /// Asks the process to have its allocator give memory back.
    pub fn request_trim(&self) {
        self.header().request.store(1, Ordering::Release);
    }

    /// Removes the file; the mapping stays.
    pub fn unlink(&self) {
        // A file that is left behind goes with the folder.
        let _ = fs::remove_file(&self.file);
    }

    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our mapping, used by nothing else.
        unsafe { libc::munmap(self.mapped.cast(), layout::SEGMENT_BYTES) };
    }
}

fn text(bytes: &[AtomicU8]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .collect();
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The segments of the folder that are complete and that `known` does not contain.
pub fn find_new(folder: &Path, known: &[Segment]) -> io::Result<Vec<Segment>> {
    find(folder, |file| {
        known.iter().any(|segment| segment.file == file)
    })
}

/// The segments of the folder that are complete and whose files are not known.
pub fn find(folder: &Path, is_known: impl Fn(&Path) -> bool) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let is_segment = file.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.contains('-') && !name.ends_with(super::chunks::SUFFIX)
        });
        if !is_segment || is_known(&file) {
            continue;
        }
        // A segment may vanish or be incomplete: the next look finds it.
        if let Ok(Some(segment)) = Segment::open(&file) {
            found.push(segment);
        }
    }
    // The older process first: a parent before its child.
    found.sort_by_key(|segment| segment.header().clock_ns.load(Ordering::Relaxed));
    Ok(found)
}
