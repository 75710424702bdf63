//! The code of the processes that are watched: which of it is the allocator's, and how its stacks
//! are walked.
//!
//! A process' files are read when its first sample comes, and again when an address lies in none of
//! them (a library was loaded, or the process executes another program). They are also read again
//! while none of them has an allocator: the loader may not have come to the C library. Stacks are
//! walked by the unwind tables of the files, or by frame pointers where there are none.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use mallard_inspect::memory::process::read;
use mallard_procfs::mapping::{self, Mapping};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};

use super::entries;
use crate::arch::{RETURNS_ARE_ON_STACK, Registers, UnwindCache, Unwinder, to_walk};
use crate::threads;

/// Frames that are examined: the allocator's entry point lies within them.
const FRAMES_MAX: usize = 24;
/// A process whose files have just been read is not read again because of an unknown address. The
/// pause doubles while none of its files has an allocator.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Stack that is read of a thread that waits or was stopped.
pub(crate) const READ_STACK_BYTES: usize = 8192;

/// A section's bytes, shared by all processes that map the file.
type Bytes = Arc<[u8]>;

/// What is needed of a file, at the addresses that the file states.
#[derive(Debug, Default)]
struct Image {
    /// The code of the allocator, sorted.
    allocator: Vec<(u64, u64)>,
    all: bool,
    sections: ExplicitModuleSectionInfo<Bytes>,
    /// Offsets in the file of the segments, with their addresses and sizes.
    segments: Vec<(u64, u64, u64)>,
}

/// The code of one process.
#[derive(Default)]
struct Process {
    unwinder: Unwinder<Bytes>,
    /// Where the code of the allocator lies, sorted.
    allocator: Vec<(u64, u64)>,
    /// All that is mapped executable, sorted.
    known: Vec<(u64, u64)>,
    read: Option<Instant>,
    /// How often its files were read without finding an allocator.
    in_vain: u32,
}

impl Process {
    /// Whether its files are to be read before an address is looked up.
    fn is_out_of_date(&self, ip: u64) -> bool {
        let pause = match (holds(&self.known, ip), self.allocator.is_empty()) {
            (true, false) => return false,
            (true, true) => READ_INTERVAL_MIN * (1 << self.in_vain.min(16)),
            (false, _) => READ_INTERVAL_MIN,
        };
        self.read.is_none_or(|at| at.elapsed() >= pause)
    }
}

/// The code of all processes.
#[derive(Default)]
pub struct Code {
    images: HashMap<(u64, u64), Rc<Image>>,
    processes: HashMap<u32, Process>,
    cache: UnwindCache,
    /// Whether any file had a function of an allocator.
    found: bool,
}

impl Code {
    /// Whether a file of the processes so far has functions of an allocator by name. Without any,
    /// no sample can be known to be inside.
    pub fn has_allocator(&self) -> bool {
        self.found
    }

    /// Whether a thread with these registers and this stack is inside the allocator; None if the
    /// process' code is not known.
    pub fn is_inside(&mut self, pid: u32, at: Registers, stack: &[u8]) -> Option<bool> {
        self.prepare(pid, at.ip);
        let process = self.processes.get(&pid)?;
        if !holds(&process.known, at.ip) {
            return None;
        }
        let mut read = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(at.sp)).map_err(|_| ())?;
            let word = stack
                .get(offset..offset.checked_add(8).ok_or(())?)
                .ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().expect("8 bytes")))
        };
        let mut frames =
            (process.unwinder).iter_frames(at.ip, to_walk(at), &mut self.cache, &mut read);
        for _ in 0..FRAMES_MAX {
            match frames.next() {
                Ok(Some(frame)) if holds(&process.allocator, frame.address_for_lookup()) => {
                    return Some(true);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        Some(false)
    }

    /// Whether a thread that waits does so inside the allocator; None where that cannot be known.
    pub fn waits_inside(&mut self, pid: u32, thread: u32) -> Option<bool> {
        let text = fs::read_to_string(threads::file(pid, thread, "syscall")).ok()?;
        let mut words = text.split_whitespace().rev();
        let mut hexadecimal = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (ip, sp) = (hexadecimal()?, hexadecimal()?);
        let stack = read_stack(pid, sp)?;
        let at = Registers {
            ip,
            sp,
            bp: 0,
            link: 0,
        };
        let inside = self.is_inside(pid, at, &stack)?;
        // The kernel does not say where the innermost function returns to. Without that, only its
        // own place is known.
        (inside || RETURNS_ARE_ON_STACK).then_some(inside)
    }

    /// Reads the process' files where they may have changed.
    fn prepare(&mut self, pid: u32, ip: u64) {
        let process = self.processes.entry(pid).or_default();
        if !process.is_out_of_date(ip) {
            return;
        }
        let Ok(mappings) = mapping::all(pid) else {
            return;
        };
        let mut fresh = Process {
            read: Some(Instant::now()),
            in_vain: process.in_vain + 1,
            ..Process::default()
        };
        for mapping in mappings.into_iter().filter(|mapping| mapping.is_executable) {
            fresh.known.push((mapping.start, mapping.end));
            let Some(image) = image(&mut self.images, pid, &mapping) else {
                continue;
            };
            let Some(bias) = image.bias(&mapping) else {
                continue;
            };
            self.found |= image.all || !image.allocator.is_empty();
            if image.all {
                fresh.allocator.push((mapping.start, mapping.end));
            } else {
                let there = |&(start, end): &(u64, u64)| {
                    let (start, end) = (start.wrapping_add(bias), end.wrapping_add(bias));
                    (start < mapping.end && end > mapping.start).then_some((start, end))
                };
                fresh
                    .allocator
                    .extend(image.allocator.iter().filter_map(there));
            }
            fresh.unwinder.add_module(Module::new(
                mapping.path,
                mapping.start..mapping.end,
                bias,
                image.sections.clone(),
            ));
        }
        if !fresh.allocator.is_empty() {
            fresh.in_vain = 0;
        }
        fresh.allocator.sort_unstable();
        fresh.known.sort_unstable();
        self.processes.insert(pid, fresh);
    }
}

/// Whether one of the sorted ranges holds an address.
fn holds(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|&(start, _)| start <= address);
    after > 0 && address < ranges[after - 1].1
}

fn image(
    images: &mut HashMap<(u64, u64), Rc<Image>>,
    pid: u32,
    mapping: &Mapping,
) -> Option<Rc<Image>> {
    if !mapping.is_file() {
        return None;
    }
    // The link leads to the file itself, even if it was replaced or lies in another namespace.
    let exact = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    let named = format!("root{}", mapping.path);
    let file = File::open(mallard_procfs::path(pid, &exact))
        .or_else(|_| File::open(mallard_procfs::path(pid, &named)))
        .ok()?;
    let data = file.metadata().ok()?;
    let key = (data.dev(), data.ino());
    if let Some(image) = images.get(&key) {
        return Some(image.clone());
    }
    // SAFETY: the map is read only here. A file that is cut meanwhile would end the lab, which is
    // true of every tool that maps what it reads.
    let content = unsafe { memmap2::Mmap::map(&file) }.ok()?;
    let image = Rc::new(Image::read(&content, &mapping.path).unwrap_or_default());
    images.insert(key, image.clone());
    Some(image)
}

impl Image {
    fn read(content: &[u8], path: &str) -> Option<Image> {
        let file = object::File::parse(content).ok()?;
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address() + section.size())
        };
        let data = |name: &str| -> Option<Bytes> {
            Some(Arc::from(file.section_by_name(name)?.data().ok()?))
        };
        let mut allocator: Vec<(u64, u64)> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.size() > 0)
            .filter(|symbol| symbol.name().is_ok_and(entries::is_allocator))
            .map(|symbol| (symbol.address(), symbol.address() + symbol.size()))
            .collect();
        allocator.sort_unstable();
        allocator.dedup();
        Some(Image {
            allocator,
            all: entries::is_allocator_library(path),
            sections: ExplicitModuleSectionInfo {
                text_svma: range(".text"),
                got_svma: range(".got"),
                eh_frame_svma: range(".eh_frame"),
                eh_frame: data(".eh_frame"),
                eh_frame_hdr_svma: range(".eh_frame_hdr"),
                eh_frame_hdr: data(".eh_frame_hdr"),
                ..ExplicitModuleSectionInfo::default()
            },
            segments: file
                .segments()
                .map(|segment| {
                    let (offset, size) = segment.file_range();
                    (offset, size, segment.address())
                })
                .collect(),
        })
    }

    /// What is added to the file's addresses in a mapping of it.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let page_bytes = mallard_procfs::page_bytes();
        let page = |address: u64| address & !(page_bytes - 1);
        self.segments
            .iter()
            .find(|(offset, size, _)| {
                page(*offset) <= mapping.offset && mapping.offset < offset + size
            })
            .map(|(offset, _, address)| {
                let here = address.wrapping_sub(*offset).wrapping_add(mapping.offset);
                mapping.start.wrapping_sub(here)
            })
    }
}

/// The stack from an address upwards, or half of it where it ends before.
fn read_stack(pid: u32, sp: u64) -> Option<Vec<u8>> {
    [READ_STACK_BYTES, READ_STACK_BYTES / 2]
        .into_iter()
        .find_map(|length| {
            let mut bytes = vec![0; length];
            read(pid, sp, &mut bytes).ok()?;
            Some(bytes)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_had_not_loaded_its_allocator_is_read_again() {
        let pid = std::process::id();
        let here = holds as fn(&[(u64, u64)], u64) -> bool as usize as u64;
        let before = Process {
            known: vec![(here, here + 1)],
            read: Instant::now().checked_sub(Duration::from_secs(1)),
            in_vain: 1,
            ..Process::default()
        };
        let mut code = Code::default();
        code.processes.insert(pid, before);
        let at = Registers {
            ip: here,
            sp: 0,
            bp: 0,
            link: 0,
        };
        assert!(code.is_inside(pid, at, &[]).is_some());
        assert!(code.has_allocator());
    }
}
