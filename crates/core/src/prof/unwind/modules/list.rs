//! A list of the loaded modules, for C libraries whose loader cannot be asked without a lock.
//!
//! A thread that is not within `malloc` makes the list, from the mappings of the process and the
//! headers of the modules in memory. Walks read it at any moment: a sequence number, odd while the
//! list is being written, shows a reader that what it read does not belong together; the reader
//! then finds no module, and does not wait.

use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The most modules that are listed.
pub const MODULES_MAX: usize = 1024;

/// A module of the list. Every field is 0 in a list that was never made.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    header: AtomicUsize,
    unwind: AtomicUsize,
}

/// A copy of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    pub start: usize,
    pub end: usize,
    pub header: usize,
    /// Where `.eh_frame_hdr` starts.
    pub unwind: usize,
}

/// The modules in the order of their addresses. Memory of zeros is an empty list.
#[repr(C)]
pub struct ModuleList<const N: usize = MODULES_MAX> {
    /// Odd while a thread writes.
    sequence: AtomicU32,
    count: AtomicU32,
    entries: [Entry; N],
}

/// Holds the right to write, which one thread at a time has.
struct Writer<'a, const N: usize> {
    list: &'a ModuleList<N>,
    before: u32,
    count: usize,
}

impl<const N: usize> ModuleList<N> {
    /// A list at the start of memory that is zero.
    ///
    /// # Safety
    /// `memory` is aligned for the list, has room for it, is zero, and stays for ever; nothing else
    /// uses it.
    pub unsafe fn in_zeroed(memory: *mut u8) -> &'static ModuleList<N> {
        // SAFETY: atomics of zeros are valid, and the caller vouches for the rest.
        unsafe { &*memory.cast::<ModuleList<N>>() }
    }

    /// The module that an address is in; none while the list is being written.
    pub fn find(&self, at: usize) -> Option<Listed> {
        let before = self.sequence.load(Ordering::Acquire);
        let (mut first, mut count) = (0, self.count.load(Ordering::Acquire) as usize);
        // Before `first` all modules begin at or before the address.
        while count > 0 {
            let half = count / 2;
            if self
                .entries
                .get(first + half)?
                .start
                .load(Ordering::Acquire)
                <= at
            {
                first += half + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        let entry = self.entries.get(first.checked_sub(1)?)?;
        // Acquire loads: a value of a later writing makes its odd number visible below.
        let found = Listed {
            start: entry.start.load(Ordering::Acquire),
            end: entry.end.load(Ordering::Acquire),
            header: entry.header.load(Ordering::Acquire),
            unwind: entry.unwind.load(Ordering::Acquire),
        };
        let is_whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        (is_whole && (found.start..found.end).contains(&at)).then_some(found)
    }

    /// Lists one module alone.
    #[cfg(test)]
    pub fn set(&self, module: Listed) {
        self.write().expect("no other thread writes").add(module);
    }

    /// Begins to write the list; `None` if another thread does.
    fn write(&self) -> Option<Writer<'_, N>> {
        let before = self.sequence.load(Ordering::Relaxed);
        let is_mine = before.is_multiple_of(2)
            && (self.sequence)
                .compare_exchange(
                    before,
                    before.wrapping_add(1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok();
        is_mine.then_some(Writer {
            list: self,
            before,
            count: 0,
        })
    }
}

impl<const N: usize> Writer<'_, N> {
    /// Lists one more module, which lies behind those before; returns whether there was room.
    fn add(&mut self, module: Listed) -> bool {
        let Some(entry) = self.list.entries.get(self.count) else {
            return false;
        };
        // Release stores: a reader that sees one sees the odd number, too.
        entry.start.store(module.start, Ordering::Release);
        entry.end.store(module.end, Ordering::Release);
        entry.header.store(module.header, Ordering::Release);
        entry.unwind.store(module.unwind, Ordering::Release);
        self.count += 1;
        true
    }
}

impl<const N: usize> Drop for Writer<'_, N> {
    fn drop(&mut self) {
        let list = self.list;
        list.count.store(self.count as u32, Ordering::Release);
        let after = self.before.wrapping_add(2);
        list.sequence.store(after, Ordering::Release);
    }
}

#[cfg(not(loom))]
mod maps {
    use super::super::elf::{Image, Known};
    use super::{Listed, ModuleList};
    use crate::sys::proc::{self, Mapping};

    impl<const N: usize> ModuleList<N> {
        /// Makes the list anew; returns whether all modules are in it. If another thread does so at
        /// the moment, that is as good.
        pub fn refresh(&self) -> bool {
            let Some(mut writer) = self.write() else {
                return true;
            };
            // Where the file of the last mappings begins: its place and its number.
            let mut first: Option<(usize, usize)> = None;
            let mut is_whole = true;
            let is_read = proc::mappings(&mut |mapping| {
                if mapping.offset == 0 && mapping.is_readable {
                    first = Some((mapping.start, mapping.inode));
                }
                if mapping.is_code
                    && let Some((start, inode)) = first
                    && inode == mapping.inode
                    && let Some(module) = module(start, mapping)
                {
                    is_whole &= writer.add(module);
                    first = None;
                }
            });
            is_read && is_whole
        }
    }

    /// The module whose file is mapped from its first byte on, and code of it elsewhere, if it has
    /// unwind tables.
    fn module(first: usize, code: &Mapping<'_>) -> Option<Listed> {
        let mut image = Image::unread(Known {
            is_doubtful: true,
            is_checked: false,
        });
        // SAFETY: a file of which code is mapped; that this is where a loader would have mapped it
        // is checked below.
        unsafe { image.read(first) }?;
        let is_loaded = image.start == first && (image.start..image.end).contains(&code.start);
        (is_loaded && image.unwind != 0).then_some(Listed {
            start: image.start,
            end: image.end,
            header: first,
            unwind: image.unwind,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::{own_process, shows_memory};
    use std::boxed::Box;
    use std::vec;

    #[test]
    fn the_list_has_the_modules_of_the_process() {
        // Tests of other threads make code and unmap it.
        own_process!();
        if !shows_memory() {
            return;
        }
        let words = size_of::<ModuleList>() / size_of::<u64>();
        let room = Box::leak(vec![0_u64; words + 1].into_boxed_slice());
        // SAFETY: aligned memory of zeros that is never freed.
        let list: &ModuleList = unsafe { ModuleList::in_zeroed(room.as_mut_ptr().cast()) };
        let here = ModuleList::<MODULES_MAX>::find as *const () as usize;
        let there = libc::qsort as *const () as usize;
        assert_eq!(list.find(here), None, "empty at first");
        assert!(list.refresh());
        let (program, library) = (list.find(here).unwrap(), list.find(there).unwrap());
        assert!(program != library && program.unwind > program.start);
        assert_eq!(
            list.find(room.as_ptr().addr()),
            None,
            "memory is not a module"
        );
        assert_eq!(list.find(usize::MAX), None);
        let held = list.write();
        assert_eq!(list.find(here), None, "while it is written");
        assert!(list.refresh(), "the other one does it");
        drop(held);
        assert_eq!(list.find(here), None, "the writer listed nothing");
        assert!(list.refresh() && list.find(here) == Some(program));
    }

    #[test]
    fn a_list_without_room_says_so() {
        own_process!();
        if !shows_memory() {
            return;
        }
        let room = Box::leak(Box::new([0_u64; size_of::<ModuleList<1>>() / 8 + 1]));
        // SAFETY: aligned memory of zeros that is never freed.
        let list: &ModuleList<1> = unsafe { ModuleList::in_zeroed(room.as_mut_ptr().cast()) };
        assert!(!list.refresh());
    }
}

/// Every interleaving of a writer and a reader.
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn listed(start: usize, mark: usize) -> Listed {
        Listed {
            start,
            end: start + 10,
            header: mark,
            unwind: mark,
        }
    }

    #[test]
    fn a_reader_sees_a_module_of_one_writing_or_none() {
        loom::model(|| {
            let list = Arc::new(ModuleList {
                sequence: AtomicU32::new(0),
                count: AtomicU32::new(0),
                entries: [Entry {
                    start: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                    header: AtomicUsize::new(0),
                    unwind: AtomicUsize::new(0),
                }],
            });
            list.write().unwrap().add(listed(100, 1));
            let reader = {
                let list = list.clone();
                thread::spawn(move || {
                    let found = list.find(106);
                    let whole = [None, Some(listed(100, 1)), Some(listed(104, 2))];
                    assert!(whole.contains(&found), "{found:?}");
                })
            };
            let mut writer = list.write().unwrap();
            assert!(writer.add(listed(104, 2)) && !writer.add(listed(200, 3)));
            drop(writer);
            reader.join().unwrap();
            assert_eq!(list.find(106), Some(listed(104, 2)));
        });
    }
}
