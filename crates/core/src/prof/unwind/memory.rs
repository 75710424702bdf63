//! Reads words of the stack, and of code, that may not be there.
//!
//! The kernel reads a word on every page that is met ([`probe`](crate::sys::probe)). Of the stack,
//! a page stays readable as long as the walk is on it. Code that was made at run time has no such
//! owner: another thread may unmap it at any time. So nothing is remembered of it ([`bytes_now`]),
//! which leaves the few instructions between the kernel's answer and the read.

use crate::sys::page::PAGE;
pub use crate::sys::probe::is_readable;

/// No multiple of a page.
pub const NO_PAGE: usize = 1;

/// The most bytes between two pages of one stack: large variables of a function lie there.
const GAP_BYTES_MAX: usize = 16 * PAGE;

/// Whether the pages from `first` to before `end` can be read.
fn are_readable(first: usize, end: usize) -> bool {
    let mut pages = (0..(end - first) / PAGE).map(|i| first + i * PAGE);
    pages.all(is_readable)
}

/// Reads words of this process. Invariant: the `len` bytes from `first` on can be read, which are
/// whole pages.
#[derive(Clone, Copy)]
pub struct Memory {
    first: usize,
    len: usize,
}

impl Memory {
    /// No page is known.
    #[inline(always)]
    pub fn unknown() -> Memory {
        Memory { first: 0, len: 0 }
    }

    /// The pages in which an earlier walk of the calling thread has read, if the stack pointer is
    /// still among them: a thread's stack stays while the thread is on it. Otherwise the page of
    /// the stack pointer: a walk may read nothing there, in a frame with large variables, and later
    /// walks go by it.
    #[inline(always)]
    pub fn known([first, end]: [usize; 2], stack_pointer: usize) -> Memory {
        if (first..end).contains(&stack_pointer) {
            Memory {
                first,
                len: end - first,
            }
        } else {
            Memory::around(stack_pointer)
        }
    }

    #[cold]
    #[inline(never)]
    fn around(stack_pointer: usize) -> Memory {
        let mut memory = Memory::unknown();
        memory.learn(stack_pointer & !(size_of::<usize>() - 1));
        memory
    }

    /// What [`Memory::known`] takes for a later walk.
    #[inline(always)]
    pub fn pages(&self) -> [usize; 2] {
        [self.first, self.end()]
    }

    /// The end of what can be read.
    #[inline(always)]
    fn end(&self) -> usize {
        self.first + self.len
    }

    /// The word at an address, if that is a multiple of eight that can be read.
    #[inline(always)]
    pub fn word(&mut self, at: usize) -> Option<usize> {
        if !at.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        let is_known = at.wrapping_sub(self.first) < self.len;
        if !is_known && !self.learn(at) {
            return None;
        }
        // SAFETY: the kernel said that the page can be read. Other threads do not write to a
        // frame's bookkeeping, and any value will do.
        Some(unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() })
    }

    /// Asks for the page of a word. It joins the known ones if it is near, with those between, as
    /// pages of a stack are; else it takes their place.
    #[cold]
    #[inline(never)]
    fn learn(&mut self, at: usize) -> bool {
        if !is_readable(at) {
            return false;
        }
        let page = at & !(PAGE - 1);
        let is_near = |gap: usize| gap <= GAP_BYTES_MAX;
        let (first, end) = (self.first, self.end());
        let (first, end) = if page >= end && is_near(page - end) && are_readable(end, page) {
            (first, page + PAGE)
        } else if page < first && is_near(first - page) && are_readable(page + PAGE, first) {
            (page, end)
        } else {
            (page, page + PAGE)
        };
        (self.first, self.len) = (first, end - first);
        true
    }
}

/// Eight bytes at any address, of memory that may be unmapped meanwhile: the kernel is asked for
/// each word right before it is read.
#[cold]
#[inline(never)]
pub fn bytes_now(at: usize) -> Option<[u8; 8]> {
    let word = |at| Memory::unknown().word(at);
    let from = at & !7;
    let low = word(from)?;
    if at == from {
        return Some(low.to_le_bytes());
    }
    let high = word(from.checked_add(8)?)?;
    let skipped = 8 * (at - from) as u32;
    Some((low >> skipped | high << (64 - skipped)).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::tests::code::Pages;
    use super::*;
    use crate::sys::arch::CODE_END;

    #[test]
    fn what_cannot_be_read_is_told_apart_and_the_mask_stays() {
        let word = 7_usize;
        let at = (&raw const word).expose_provenance();
        let mask = || {
            let mut set = [0_u64; 16];
            // SAFETY: the set has room for the C library's.
            unsafe { libc::sigprocmask(0, core::ptr::null(), set.as_mut_ptr().cast()) };
            set[0]
        };
        let before = mask();
        assert!(is_readable(at));
        for bad in [0, 8, CODE_END, usize::MAX - 7, 0xffff_8000_0000_0000] {
            assert!(!is_readable(bad), "{bad:#x}");
            assert_eq!(Memory::unknown().word(bad), None);
        }
        assert_eq!(mask(), before);
        let mut memory = Memory::unknown();
        assert_eq!(memory.word(at), Some(7));
        assert_eq!(memory.word(at + 1), None);
        // Addresses at both ends of the known memory, and next to them.
        let (first, end) = (memory.first, memory.end());
        assert!(first <= at && at < end && end - first == PAGE);
        assert!(memory.word(end - 8).is_some());
        assert_eq!((memory.first, memory.end()), (first, end));
        // The page below joins, and what is known serves a walk that begins there.
        if is_readable(first - 8) {
            assert!(memory.word(first - 8).is_some());
            assert_eq!(memory.pages(), [first - PAGE, end]);
        }
        let again = Memory::known(memory.pages(), at);
        assert_eq!(again.pages(), memory.pages());
        let other = Memory::known(memory.pages(), 8);
        assert_eq!(other.pages(), [0, 0]);
        // A walk that reads far above the stack pointer is known by that pointer again.
        let block = [0_u8; 4 * PAGE];
        let low = block.as_ptr().expose_provenance();
        let mut large_frame = Memory::known([0, 0], low);
        assert!(large_frame.word((low + 3 * PAGE) & !7).is_some());
        let again = Memory::known(large_frame.pages(), low);
        assert_eq!(again.pages(), large_frame.pages());
        assert!(again.len > 2 * PAGE);
        let text = *b"0123456789abcdef";
        let at = text.as_ptr().expose_provenance();
        for skipped in 0..8 {
            assert_eq!(bytes_now(at + skipped).unwrap(), text[skipped..skipped + 8]);
        }
    }

    #[test]
    fn code_that_was_unmapped_since_the_last_look_is_not_read() {
        let mut pages = Pages::new(1);
        pages.bytes()[8..16].copy_from_slice(b"01234567");
        let at = pages.start() + 8;
        assert_eq!(bytes_now(at), Some(*b"01234567"));
        let start = std::ptr::with_exposed_provenance_mut(pages.start());
        // SAFETY: memory of this test, which nothing refers to.
        let done = unsafe { libc::mprotect(start, PAGE, libc::PROT_NONE) };
        assert_eq!((done, bytes_now(at)), (0, None));
    }
}
