//! The blocks of a scenario, and what must hold of every call.

use crate::api;
use crate::heap::PAGE_HEAPS;
use crate::space::meta;
use crate::stats;
use crate::sys::errno;
use crate::sys::faults;
use std::vec::Vec;

/// What no call of ours sets.
const UNTOUCHED: i32 = libc::EDOM;
/// The bytes from one mark to the next, in long blocks.
const STRIDE: usize = 4096;
/// Longer blocks have few marks.
const LONG: usize = 4 << 20;

/// A block with marks in it that are its own.
#[derive(Clone, Copy)]
pub struct Block {
    pub at: *mut u8,
    pub size: usize,
    tag: u64,
}

// SAFETY: a block is its holder's, in whatever thread.
unsafe impl Send for Block {}

impl Block {
    /// The places of the marks.
    fn marks(size: usize) -> impl Iterator<Item = usize> {
        let stride = if size <= STRIDE {
            64
        } else if size <= LONG {
            STRIDE
        } else {
            (size / 6).next_multiple_of(STRIDE)
        };
        (0..size).step_by(stride).chain(size.checked_sub(1))
    }

    fn mark(self, place: usize) -> u8 {
        (self.tag ^ place as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_be_bytes()[0]
    }

    fn write(self) {
        for place in Self::marks(self.size) {
            // SAFETY: within the block.
            unsafe { self.at.add(place).write_volatile(self.mark(place)) };
        }
    }

    /// Checks the marks of the first `len` bytes of a block of this size and tag.
    pub fn check(self, len: usize) {
        for place in Self::marks(self.size).filter(|&place| place < len) {
            // SAFETY: within the block.
            let found = unsafe { self.at.add(place).read_volatile() };
            assert_eq!(
                found,
                self.mark(place),
                "byte {place} of {} changed",
                self.size
            );
        }
    }
}

/// What the allocator holds when the program holds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    pub allocated: usize,
    pub pages: usize,
    pub records: usize,
}

/// What a scenario has, in one thread.
#[derive(Default)]
pub struct World {
    pub blocks: Vec<Block>,
    tag: u64,
    random: u64,
}

/// Makes a call that returns a block or null, and checks `errno`.
pub fn checked(size: usize, call: impl FnOnce() -> *mut u8) -> Option<*mut u8> {
    errno::set(UNTOUCHED);
    let p = call();
    let found = errno::get();
    if p.is_null() {
        assert_eq!(found, libc::ENOMEM, "errno after null for {size}");
        assert!(
            faults::counts().1 > 0,
            "null for {size} though nothing failed"
        );
        return None;
    }
    assert_eq!(found, UNTOUCHED, "errno after a block of {size}");
    Some(p)
}

/// Makes a call that must leave `errno`.
pub fn kept<T>(what: &str, call: impl FnOnce() -> T) -> T {
    errno::set(UNTOUCHED);
    let result = call();
    assert_eq!(errno::get(), UNTOUCHED, "errno after {what}");
    result
}

impl World {
    pub fn new() -> World {
        World::default()
    }

    /// A world for another thread.
    pub fn other(&mut self) -> World {
        self.tag += 1 << 32;
        World {
            tag: self.tag,
            random: self.tag,
            ..World::default()
        }
    }

    /// A number below `n`, the same in every run.
    pub fn below(&mut self, n: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) as usize % n
    }

    /// Keeps the block that a call returns. Returns whether there was one.
    pub fn take(&mut self, size: usize, call: impl FnOnce() -> *mut u8) -> bool {
        let Some(at) = checked(size, call) else {
            return false;
        };
        self.tag += 1;
        let block = Block {
            at,
            size,
            tag: self.tag,
        };
        block.write();
        self.blocks.push(block);
        true
    }

    pub fn alloc(&mut self, size: usize) -> bool {
        self.take(size, || api::alloc(size))
    }

    pub fn zeroed(&mut self, size: usize) -> bool {
        let check = || {
            let at = api::alloc_zeroed(size);
            for place in Block::marks(size).filter(|_| !at.is_null()) {
                // SAFETY: within the new block.
                let byte = unsafe { at.add(place).read_volatile() };
                assert_eq!(byte, 0, "not zero at {place}");
            }
            at
        };
        self.take(size, check)
    }

    pub fn aligned(&mut self, size: usize, align: usize) -> bool {
        let done = self.take(size, || api::alloc_aligned(size, align));
        let last = self.blocks.last().map_or(0, |block| block.at.addr());
        assert!(!done || last.is_multiple_of(align));
        done
    }

    /// Resizes a block by number. Returns whether it has the new size.
    pub fn resize(&mut self, number: usize, size: usize) -> bool {
        let Some(&old) = self.blocks.get(number) else {
            return false;
        };
        // SAFETY: the block is ours.
        let got = checked(size, || unsafe { api::realloc(old.at, size) });
        let Some(at) = got else {
            old.check(old.size);
            return false;
        };
        Block { at, ..old }.check(old.size.min(size));
        let new = Block { at, size, ..old };
        new.write();
        self.blocks[number] = new;
        true
    }

    pub fn free(&mut self, number: usize) {
        if number < self.blocks.len() {
            self.free_block(number, |block| {
                // SAFETY: the block is ours, and not used any more.
                unsafe { api::dealloc(block.at) }
            });
        }
    }

    /// Frees a block by a call.
    pub fn free_block(&mut self, number: usize, call: impl FnOnce(Block)) {
        let block = self.blocks.swap_remove(number);
        block.check(block.size);
        kept("free", || call(block));
    }

    /// Frees all blocks but every `n`-th; 0 keeps none.
    pub fn free_but(&mut self, n: usize) {
        for number in (0..self.blocks.len()).rev() {
            if n == 0 || !number.is_multiple_of(n) {
                self.free(number);
            }
        }
    }

    /// Frees everything; what the allocator holds then. Nothing fails any more, so requests of all
    /// sizes succeed.
    pub fn settle(&mut self) -> Holdings {
        for size in [1, 100, 1032, 14_000, 100_000, 1 << 20, 5 << 20] {
            let p = api::alloc(size);
            assert!(!p.is_null(), "no block of {size} though memory is back");
            // SAFETY: the block is new, and this long.
            unsafe {
                p.write_bytes(1, size.min(STRIDE));
                api::dealloc(p);
            }
        }
        self.free_but(0);
        api::trim();
        let heap = PAGE_HEAPS.totals();
        let figures = Holdings {
            allocated: stats::now().allocated,
            pages: heap.used,
            records: meta::totals().used,
        };
        assert_eq!(figures.allocated, 0, "bytes allocated when all is freed");
        figures
    }
}
