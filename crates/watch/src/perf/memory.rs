//! What lies at the addresses of page faults: heaps, files or stacks.
//!
//! This comes from `/proc/PID/maps`, which is read again when an address lies in no known mapping.
//! A mapping that came and went between two samples is not seen.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mallard_procfs::mapping::{self, Mapping};

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// Anonymous memory that no stack pointer points into: heaps of any allocator.
    Heap,
    /// Files, shared memory, and the program’s own data.
    File,
    Stack,
    /// The mapping was gone before it could be looked at.
    Gone,
}

/// Mappings are not read again sooner.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// The mappings of all processes.
#[derive(Debug, Default)]
pub struct Maps(HashMap<u32, Known>);

#[derive(Debug, Default)]
struct Known {
    /// Sorted by address.
    all: Vec<Mapping>,
    read: Option<Instant>,
}

impl Maps {
    /// What lies at an address of a process, whose thread has this stack pointer.
    pub fn region(&mut self, pid: u32, address: u64, stack: u64) -> Region {
        let known = self.0.entry(pid).or_default();
        if find(&known.all, address).is_none()
            && known
                .read
                .is_none_or(|at| at.elapsed() >= READ_INTERVAL_MIN)
        {
            known.read = Some(Instant::now());
            let now = mapping::all(pid).unwrap_or_default();
            // A process that has ended has none; the last ones are still valid.
            if !now.is_empty() {
                known.all = now;
            }
        }
        region(&known.all, address, stack)
    }
}

fn find(all: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = all.partition_point(|mapping| mapping.start <= address);
    all.get(after.checked_sub(1)?)
        .filter(|mapping| address < mapping.end)
}

fn region(all: &[Mapping], address: u64, stack: u64) -> Region {
    let Some(mapping) = find(all, address) else {
        return Region::Gone;
    };
    let is_stack =
        mapping.path.starts_with("[stack") || (mapping.start..mapping.end).contains(&stack);
    if mapping.is_file() {
        Region::File
    } else if is_stack {
        Region::Stack
    } else {
        Region::Heap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_files_and_stacks_are_told_apart() {
        let maps = "\
1000-2000 r-xp 00000000 fe:00 12 /usr/bin/a (deleted)
2000-3000 rw-p 00000000 00:00 0 [heap]
4000-5000 rw-p 00000000 00:00 0
5000-6000 rw-p 00000000 00:00 0 [anon:glibc: malloc]
7000-8000 rw-s 00000000 00:01 9 /memfd:x (deleted)
9000-a000 rw-p 00000000 00:00 0 [stack]";
        let all: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        let at = |address| region(&all, address, 0x4100);
        assert_eq!(at(0x1008), Region::File);
        assert_eq!(at(0x2fff), Region::Heap);
        assert_eq!(at(0x3000), Region::Gone);
        // The thread runs on this one.
        assert_eq!(at(0x4f00), Region::Stack);
        assert_eq!(region(&all, 0x4f00, 0x9100), Region::Heap);
        assert_eq!(at(0x5000), Region::Heap);
        assert_eq!(at(0x7000), Region::File);
        assert_eq!(at(0x9000), Region::Stack);
        assert_eq!(at(0), Region::Gone);
    }

    #[test]
    fn the_memory_of_this_process_is_known() {
        let (here, heap) = (0_u8, Box::new(0_u8));
        let stack = (&raw const here) as u64;
        let mut maps = Maps::default();
        let mut region = |address| maps.region(std::process::id(), address, stack);
        assert_eq!(region(stack), Region::Stack);
        assert_eq!(region((&raw const *heap) as u64), Region::Heap);
        assert_eq!(region(find as *const () as u64), Region::File);
        assert_eq!(region(8), Region::Gone);
    }
}
