//! The model: the live blocks, their requests and their contents.
//!
//! Every request to the allocator goes through here, and every result is checked. A [`Blocks`]
//! belongs to one thread at a time; blocks move to another one through [`Blocks::part_with`] and
//! [`Blocks::receive`].

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use mallard_core::{Mallard, api};

use super::pattern;

/// How a block was allocated, which determines how it may be freed.
#[derive(Clone, Copy, Debug)]
pub enum Made {
    Plain,
    Aligned,
    /// Through Rust's allocator interface.
    Front(Layout),
}

#[derive(Debug)]
pub struct Block {
    at: usize,
    size: usize,
    usable: usize,
    made: Made,
    /// The number that determines its contents.
    id: u64,
}

/// How a block is freed.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Free,
    Sized,
}

#[derive(Default)]
pub struct Blocks {
    live: Vec<Block>,
    /// The start and end of every live block.
    ranges: BTreeMap<usize, usize>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The alignment of a block of `size` bytes without a request for one.
fn natural_align(size: usize) -> usize {
    if size < 16 { 8 } else { 16 }
}

impl Blocks {
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The block that a number selects; none if there are no blocks.
    fn index(&self, pick: usize) -> Option<usize> {
        pick.checked_rem(self.live.len())
    }

    fn block_at(&self, at: usize) -> *mut u8 {
        at as *mut u8
    }

    pub fn alloc(&mut self, size: usize) {
        let p = api::alloc(size);
        self.check_options(p, 0);
        self.enter(p, size, natural_align(size), Made::Plain);
    }

    pub fn alloc_zeroed(&mut self, size: usize) {
        let p = api::alloc_zeroed(size);
        assert!(!p.is_null(), "no memory for {size} zeroed bytes");
        // SAFETY: a live block of this usable size.
        unsafe { pattern::assert_all(p, 0, api::usable_size(p), 0, "zeroed block") };
        self.enter(p, size, natural_align(size), Made::Plain);
    }

    pub fn alloc_aligned(&mut self, size: usize, align: usize) {
        let p = api::alloc_aligned(size, align);
        self.check_options(p, 0);
        self.enter(p, size, align, Made::Aligned);
    }

    /// Allocates through Rust's interface, which does not permit 0 bytes.
    pub fn alloc_front(&mut self, size: usize, align: usize, zeroed: bool) {
        let layout = Layout::from_size_align(size.max(1), align).unwrap();
        // SAFETY: the layout is not empty.
        let p = unsafe {
            if zeroed {
                Mallard.alloc_zeroed(layout)
            } else {
                Mallard.alloc(layout)
            }
        };
        assert!(!p.is_null(), "no memory for {layout:?}");
        if zeroed {
            // SAFETY: a live block of this usable size.
            unsafe { pattern::assert_all(p, 0, api::usable_size(p), 0, "zeroed block") };
        }
        self.enter(p, layout.size(), align, Made::Front(layout));
    }

    /// Checks what the options promise of a new block's bytes from `from` on.
    fn check_options(&self, p: *mut u8, from: usize) {
        assert!(!p.is_null(), "no memory");
        // SAFETY: a live block.
        let usable = unsafe { api::usable_size(p) };
        let options = api::options();
        // SAFETY: the block is that long.
        unsafe {
            if options.zero {
                pattern::assert_all(p, from, usable, 0, "block under zero:true");
            } else if options.junk.on_alloc() {
                pattern::assert_all(p, from, usable, 0xa5, "block under junk:true");
            }
        }
    }

    /// Compares a new block with the live ones, and fills it.
    fn enter(&mut self, p: *mut u8, size: usize, align: usize, made: Made) {
        assert!(!p.is_null(), "no memory for {size} bytes at {align}");
        let at = p.addr();
        assert_eq!(at % align, 0, "{at:#x} for {size} bytes at {align}");
        // SAFETY: a live block.
        let usable = unsafe { api::usable_size(p) };
        assert!(usable >= size, "{usable} usable bytes for {size}");
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        // SAFETY: all usable bytes are ours.
        unsafe { pattern::fill(p, usable, id) };
        self.file(Block {
            at,
            size,
            usable,
            made,
            id,
        });
    }

    fn file(&mut self, block: Block) {
        let (at, end) = (block.at, block.at + block.usable);
        if let Some((&other, &other_end)) = self.ranges.range(..end).next_back() {
            assert!(
                other_end <= at,
                "{at:#x} to {end:#x} overlaps the live block {other:#x} to {other_end:#x}"
            );
        }
        self.ranges.insert(at, end);
        self.live.push(block);
    }

    fn take_out(&mut self, index: usize) -> Block {
        let block = self.live.swap_remove(index);
        self.ranges.remove(&block.at);
        block
    }

    fn assert_intact(&self, block: &Block) {
        let p = self.block_at(block.at);
        // SAFETY: a live block.
        unsafe {
            assert_eq!(
                api::usable_size(p),
                block.usable,
                "usable size of {block:?}"
            );
            pattern::assert_kept(p, block.usable, block.usable, block.id);
        }
    }

    pub fn free(&mut self, pick: usize, way: Way) {
        let Some(index) = self.index(pick) else {
            return;
        };
        let block = self.take_out(index);
        self.assert_intact(&block);
        let p = self.block_at(block.at);
        // SAFETY: the block is live, leaves the model here, and is freed as it was allocated.
        unsafe {
            match (block.made, way) {
                (Made::Plain, Way::Sized) => api::dealloc_sized(p, block.size),
                (Made::Front(layout), _) => Mallard.dealloc(p, layout),
                _ => api::dealloc(p),
            }
        }
    }

    pub fn free_all(&mut self) {
        while !self.is_empty() {
            self.free(self.live.len() - 1, Way::Free);
        }
    }

    pub fn resize(&mut self, pick: usize, size: usize) {
        let Some(index) = self.index(pick) else {
            return;
        };
        let block = self.take_out(index);
        self.assert_intact(&block);
        let old = self.block_at(block.at);
        // `realloc` keeps all usable bytes, and Rust's interface only the requested ones.
        let (p, size, kept, align, made) = match block.made {
            Made::Plain | Made::Aligned => {
                // SAFETY: the block is live and leaves the model here.
                let p = unsafe { api::realloc(old, size) };
                let kept = block.usable.min(size);
                (p, size, kept, natural_align(size), Made::Plain)
            }
            Made::Front(layout) => {
                let size = size.max(1);
                let new = Layout::from_size_align(size, layout.align()).unwrap();
                // SAFETY: as above; the new layout is valid.
                let p = unsafe { Mallard.realloc(old, layout, size) };
                (
                    p,
                    size,
                    block.size.min(size),
                    layout.align(),
                    Made::Front(new),
                )
            }
        };
        assert!(!p.is_null(), "no memory to resize {block:?} to {size}");
        // SAFETY: the new block is at least `kept` bytes long.
        unsafe { pattern::assert_kept(p, block.usable, kept, block.id) };
        // Rust's interface copies only the requested bytes.
        self.check_options(p, block.usable);
        self.enter(p, size, align, made);
    }

    /// Makes requests that must fail; `pick` selects a block to be resized.
    pub fn ask_the_impossible(&mut self, pick: usize, size: usize) {
        for align in [1, 16, 4096, 4 << 20, 1 << 62] {
            assert!(
                api::alloc_aligned(size, align).is_null(),
                "{size} at {align}"
            );
        }
        assert!(api::alloc(size).is_null(), "{size} bytes");
        assert!(api::alloc_zeroed(size).is_null(), "{size} zeroed bytes");
        if let Some(index) = self.index(pick) {
            let block = &self.live[index];
            if !matches!(block.made, Made::Front(_)) {
                // SAFETY: the block is live, and stays so if null is returned.
                let p = unsafe { api::realloc(self.block_at(block.at), size) };
                assert!(p.is_null(), "{block:?} resized to {size}");
            }
            self.assert_intact(block);
        }
    }

    /// Takes a block out of the model without freeing it.
    pub fn part_with(&mut self, pick: usize) -> Option<Block> {
        let index = self.index(pick)?;
        Some(self.take_out(index))
    }

    /// Takes a block from another model.
    pub fn receive(&mut self, block: Block) {
        self.assert_intact(&block);
        self.file(block);
    }

    pub fn assert_all_intact(&self) {
        self.live.iter().for_each(|block| self.assert_intact(block));
    }
}
