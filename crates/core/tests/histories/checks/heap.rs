//! A history of legal calls of all fronts, against a model of the live blocks.
//!
//! The model checks that blocks are disjoint, aligned, long enough, keep their bytes, and are zero
//! where that was asked for; that sizes told in advance are those of the blocks; that what the
//! thread and the process count is what the model has; and that nothing is left at the end.
//!
//! Each history has a thread of its own, so that it begins with an empty cache, and ends with the
//! end of a thread. Only one may run at a time, because the statistics are the process's.

use super::bytes::Bytes;
use super::pattern;
use mallard_core::api::{self, arenas, extended, extended::Flags, threads};
use mallard_core::ctl::{self, Error, Request};
use mallard_core::{Mallard, stats};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::panic::resume_unwind;

/// The most bytes that live blocks have together; beyond it, one is freed for each that is made.
const LIVE_MAX: usize = 192 << 20;

/// How a block was asked for, which determines how it may be freed.
#[derive(Clone, Copy, Debug)]
enum Made {
    Plain(usize),
    Aligned,
    Rust(Layout),
    Flagged(usize, usize),
}

#[derive(Debug)]
pub struct Block {
    pub p: *mut u8,
    pub usable: usize,
    /// The number that determines its contents.
    id: u64,
    made: Made,
}

pub struct History<'a> {
    pub bytes: Bytes<'a>,
    pub blocks: Vec<Block>,
    /// The start and end of every live block.
    ranges: BTreeMap<usize, usize>,
    /// Bytes of the live blocks, and of those that an arena discarded.
    live: usize,
    discarded: usize,
    ids: u64,
    /// The numbers of manual caches and manual arenas.
    caches: Vec<u32>,
    arenas: Vec<u32>,
    /// The manual arena that the thread is in.
    mine: Option<u32>,
    /// The thread's counts, if it counts: then all calls leave the fast paths.
    counts: Option<(&'static threads::Counts, usize)>,
    /// Allocated bytes of the process before.
    before: usize,
}

/// Runs a history in a thread of its own, and checks that nothing is left.
pub fn history(bytes: &[u8]) {
    apart(|| {
        let mut history = History::new(bytes);
        history.run();
        history.end();
    });
}

/// Runs `body` in a thread of its own, and checks that no block is left when it has ended.
pub fn apart(body: impl FnOnce() + Send) {
    let before = stats::now().allocated;
    std::thread::scope(|scope| {
        let done = scope.spawn(body).join();
        done.unwrap_or_else(|panic| resume_unwind(panic));
    });
    api::trim();
    assert_eq!(stats::now().allocated, before, "bytes after the end");
}

/// Calls `mallctl` without an answer; `new` is written, if there is one.
fn tell(name: &str, new: Option<u32>) -> Result<(), Error> {
    let value = new
        .as_ref()
        .map_or(std::ptr::null(), |v| (&raw const *v).cast());
    let (none, len) = (std::ptr::null_mut(), new.map_or(0, |_| size_of::<u32>()));
    // SAFETY: the new value is as long as it says; blocks of an arena that is reset were dropped.
    let mut request = unsafe { Request::new(none, std::ptr::null_mut(), value, len) };
    ctl::by_name(name.as_bytes(), &mut request)
}

impl<'a> History<'a> {
    /// For the calling thread, which is new.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut bytes = Bytes::new(bytes);
        let before = stats::now().allocated;
        let counts = bytes.byte().is_multiple_of(4).then(|| {
            let counts = threads::counts().expect("there is memory");
            (counts, balance(counts))
        });
        History {
            bytes,
            blocks: Vec::new(),
            ranges: BTreeMap::new(),
            live: 0,
            discarded: 0,
            ids: 0,
            caches: Vec::new(),
            arenas: Vec::new(),
            mine: None,
            counts,
            before,
        }
    }

    /// Runs the history until the bytes end.
    pub fn run(&mut self) {
        while !self.bytes.is_empty() {
            self.step();
        }
    }

    /// Frees all, and gives up the caches and arenas.
    pub fn end(&mut self) {
        self.blocks.iter().for_each(assert_intact);
        self.check_counts();
        self.check_figures();
        while !self.blocks.is_empty() {
            self.free_with(self.blocks.len() - 1, |p| {
                // SAFETY: the block has left the model.
                unsafe { api::dealloc(p) }
            });
        }
        self.check_counts();
        self.enter(None);
        for number in std::mem::take(&mut self.caches) {
            assert_eq!(tell("tcache.destroy", Some(number)), Ok(()));
        }
        threads::flush_cache().ok();
        while let Some(arena) = self.arenas.pop() {
            assert_eq!(tell(&format!("arena.{arena}.destroy"), None), Ok(()));
        }
        self.check_figures();
    }

    fn step(&mut self) {
        match self.bytes.byte() % 32 {
            0..5 => {
                let size = self.bytes.size();
                self.alloc(size);
            }
            5 | 6 => {
                let size = self.bytes.size();
                self.made(
                    api::alloc_zeroed(size),
                    size,
                    natural(size),
                    Some(0),
                    Made::Plain(size),
                );
            }
            7 => {
                let (size, align) = (self.bytes.size(), self.bytes.align());
                self.made(
                    api::alloc_aligned(size, align),
                    size,
                    align,
                    None,
                    Made::Aligned,
                );
            }
            8 => self.alloc_by_layout(),
            9..13 => self.alloc_with_flags(),
            13..16 => self.free(),
            16 => self.free_with_flags(),
            17..20 => self.realloc(),
            20 | 21 => self.realloc_with_flags(),
            22 => self.resize_in_place(),
            23 => self.ask_the_impossible(),
            24 => self.many(),
            25 => self.free_many(),
            26 => self.change_caches(),
            27 => self.change_arenas(),
            28 => self.change_thread(),
            29 => self.return_memory(),
            30 => self.set_decay(),
            _ => self.check_figures(),
        }
        self.check_counts();
        while self.live > LIVE_MAX {
            self.free();
        }
    }

    fn alloc(&mut self, size: usize) {
        self.made(
            api::alloc(size),
            size,
            natural(size),
            None,
            Made::Plain(size),
        );
    }

    /// Checks a new block, fills it and enters it. From byte `zeroed` on, it has to be zero.
    fn made(&mut self, p: *mut u8, size: usize, align: usize, zeroed: Option<usize>, made: Made) {
        assert!(!p.is_null(), "no memory: {made:?}");
        assert!(p.addr().is_multiple_of(align), "{p:p}: {made:?}, {align}");
        // SAFETY: a live block.
        let usable = unsafe { api::usable_size(p) };
        assert!(usable >= size, "{usable} usable bytes: {made:?}");
        let options = api::options();
        if let Some(from) = zeroed.or(options.zero.then_some(usable)) {
            // SAFETY: a live block of this usable size.
            unsafe { pattern::assert_all(p, from, usable, 0, "zeroed block") };
        }
        self.ids += 1;
        // SAFETY: all usable bytes are ours.
        unsafe { pattern::fill(p, usable, self.ids) };
        let (at, end) = (p.addr(), p.addr() + usable);
        if let Some((&other, &other_end)) = self.ranges.range(..end).next_back() {
            assert!(
                other_end <= at,
                "{at:#x} to {end:#x} overlaps the live block {other:#x} to {other_end:#x}"
            );
        }
        self.ranges.insert(at, end);
        self.live += usable;
        self.blocks.push(Block {
            p,
            usable,
            id: self.ids,
            made,
        });
    }

    fn take_out(&mut self, index: usize) -> Block {
        let block = self.blocks.swap_remove(index);
        assert_intact(&block);
        self.ranges.remove(&block.p.addr());
        self.live -= block.usable;
        block
    }

    fn pick(&mut self) -> Option<usize> {
        let pick = self.bytes.pair();
        pick.checked_rem(self.blocks.len())
    }

    /// Frees a block: as Rust asks for it if it is Rust's, else with `way`.
    fn free_with(&mut self, index: usize, way: impl FnOnce(*mut u8)) {
        let block = self.take_out(index);
        match block.made {
            // SAFETY: allocated with this layout, and has left the model.
            Made::Rust(layout) => unsafe { Mallard.dealloc(block.p, layout) },
            _ => way(block.p),
        }
    }

    fn free(&mut self) {
        let Some(index) = self.pick() else { return };
        let (sized, made) = (self.bytes.byte().is_multiple_of(2), self.blocks[index].made);
        self.free_with(index, |p| {
            // SAFETY: the block has left the model, and was asked for with this size.
            unsafe {
                match made {
                    Made::Plain(size) if sized => api::dealloc_sized(p, size),
                    _ => api::dealloc(p),
                }
            }
        });
    }

    fn free_with_flags(&mut self) {
        let Some(index) = self.pick() else { return };
        let (sized, made) = (self.bytes.byte() % 4, self.blocks[index].made);
        let (flags, usable) = (self.flags().0, self.blocks[index].usable);
        self.free_with(index, |p| {
            // SAFETY: the block has left the model; the size is one that it was asked for with, or
            // the usable one.
            unsafe {
                match made {
                    Made::Flagged(size, align) if sized == 0 => {
                        extended::dealloc_sized_with(p, size, flags.align(align));
                    }
                    Made::Flagged(_, align) if sized == 1 => {
                        extended::dealloc_sized_with(p, usable, flags.align(align));
                    }
                    _ => extended::dealloc_with(p, flags),
                }
            }
        });
    }

    fn alloc_by_layout(&mut self) {
        let (size, align) = (self.bytes.size().max(1), self.bytes.align());
        let zeroed = self.bytes.byte().is_multiple_of(2);
        let layout = Layout::from_size_align(size, align).expect("a layout");
        // SAFETY: the layout is not empty.
        let p = unsafe {
            if zeroed {
                Mallard.alloc_zeroed(layout)
            } else {
                Mallard.alloc(layout)
            }
        };
        self.made(p, size, align, zeroed.then_some(0), Made::Rust(layout));
    }

    /// Flags without an alignment, and whether they ask for zeros. They name only what exists.
    fn flags(&mut self) -> (Flags, bool) {
        let n = self.bytes.byte();
        let zero = n & 128 != 0;
        let mut flags = if zero {
            Flags::NONE.zero()
        } else {
            Flags::NONE
        };
        let of = |numbers: &[u32]| numbers.get(usize::from(n / 16 % 2)).copied();
        if n & 1 != 0 {
            flags = of(&self.arenas).map_or(flags.arena(0), |arena| flags.arena(arena));
        }
        match n & 6 {
            2 => flags = of(&self.caches).map_or(flags, |cache| flags.cache(cache)),
            4 => flags = flags.no_cache(),
            _ => {}
        }
        (flags, zero)
    }

    fn alloc_with_flags(&mut self) {
        let (size, align) = (self.bytes.size().max(1), self.bytes.align());
        let (flags, zero) = self.flags();
        let flags = flags.align(align);
        let told = extended::usable_size_for(size, flags);
        let p = extended::alloc_with(size, flags);
        let made = Made::Flagged(size, align);
        self.made(p, size, align, zero.then_some(0), made);
        let usable = self.blocks.last().map(|block| block.usable);
        assert_eq!(usable, Some(told), "{made:?} with {flags:?}");
    }

    fn realloc(&mut self) {
        let Some(index) = self.pick() else { return };
        let size = self.bytes.size();
        let block = self.take_out(index);
        let (p, kept, align, made) = match block.made {
            // `realloc` keeps all usable bytes, and Rust's interface only the requested ones.
            Made::Rust(layout) => {
                let size = size.max(1);
                let new = Layout::from_size_align(size, layout.align()).expect("a layout");
                // SAFETY: the block has left the model; the new layout is valid.
                let p = unsafe { Mallard.realloc(block.p, layout, size) };
                (p, layout.size().min(size), layout.align(), Made::Rust(new))
            }
            _ => {
                // SAFETY: the block has left the model.
                let p = unsafe { api::realloc(block.p, size) };
                (p, block.usable.min(size), natural(size), Made::Plain(size))
            }
        };
        self.resized(&block, p, kept);
        self.made(p, size, align, None, made);
    }

    /// Checks that a block that was resized has kept its first bytes.
    fn resized(&self, old: &Block, p: *mut u8, kept: usize) {
        assert!(!p.is_null(), "no memory to resize {old:?}");
        // SAFETY: the new block is at least `kept` bytes long.
        unsafe { pattern::assert_kept(p, old.usable, kept, old.id) };
    }

    fn realloc_with_flags(&mut self) {
        let Some(index) = self.pick() else { return };
        if matches!(self.blocks[index].made, Made::Rust(_)) {
            return;
        }
        let (size, align) = (self.bytes.size().max(1), self.bytes.align());
        let (flags, zero) = self.flags();
        let flags = flags.align(align);
        let block = self.take_out(index);
        // SAFETY: the block has left the model.
        let p = unsafe { extended::realloc_with(block.p, size, flags) };
        self.resized(&block, p, block.usable.min(size));
        let zeroed = zero.then_some(block.usable);
        self.made(p, size, align, zeroed, Made::Flagged(size, align));
    }

    fn resize_in_place(&mut self) {
        let Some(index) = self.pick() else { return };
        if matches!(self.blocks[index].made, Made::Rust(_)) {
            return;
        }
        let (size, more) = (self.bytes.size().max(1), self.bytes.byte());
        let extra = if more % 2 == 0 {
            0
        } else {
            usize::from(more) << 12
        };
        let (flags, zero) = self.flags();
        let block = self.take_out(index);
        // SAFETY: the block has left the model.
        let usable = unsafe { extended::resize_in_place(block.p, size, extra, flags) };
        let max = extended::usable_size_for(size + extra, Flags::NONE);
        assert!(
            usable == block.usable || usable <= max,
            "{usable} of {size} and {extra}"
        );
        assert!(usable >= block.usable.min(size), "shrunk below {size}");
        let kept = block.usable.min(usable);
        self.resized(&block, block.p, kept);
        let (asked, align) = match block.made {
            Made::Flagged(asked, align) => (asked, align),
            Made::Plain(asked) => (asked, natural(asked).min(natural(usable))),
            _ => (block.usable, 1),
        };
        let made = match block.made {
            unchanged if usable == block.usable => unchanged,
            _ => Made::Flagged(usable, align),
        };
        let zeroed = zero.then_some(block.usable);
        self.made(block.p, asked.min(usable), align, zeroed, made);
        let now = self.blocks.last().map(|block| block.usable);
        assert_eq!(now, Some(usable), "what was told is what it is");
    }

    /// Requests that must fail, and change nothing.
    fn ask_the_impossible(&mut self) {
        let n = self.bytes.pair();
        let size = match n % 4 {
            0 => usize::MAX - n,
            1 => isize::MAX as usize - n,
            2 => isize::MAX as usize + n,
            _ => (1 << 62) + n,
        };
        assert!(api::alloc(size).is_null(), "{size}");
        assert!(api::alloc_zeroed(size).is_null(), "{size}");
        let align = 1 << (n / 4 % 63);
        assert!(
            api::alloc_aligned(size, align).is_null(),
            "{size} at {align}"
        );
        let flags = self.flags().0.align(align);
        assert!(
            extended::alloc_with(size, flags).is_null(),
            "{size}, {flags:?}"
        );
        let told = extended::usable_size_for(size, flags);
        assert!(
            told == 0 || (size..=api::MAX).contains(&told),
            "{told} for {size}"
        );
        let far = Flags::NONE.align(1 << (47 + n % 16));
        assert!(extended::alloc_with(1, far).is_null(), "{far:?}");
        let Some(index) = self.pick() else { return };
        let block = &self.blocks[index];
        if matches!(block.made, Made::Rust(_)) {
            return;
        }
        // SAFETY: the block is live, and stays so where the result is null.
        unsafe {
            assert!(api::realloc(block.p, size).is_null());
            assert!(extended::realloc_with(block.p, size, flags).is_null());
            let usable = extended::resize_in_place(block.p, size, 0, Flags::NONE);
            assert_eq!(usable, block.usable);
        }
        assert_intact(block);
    }

    fn many(&mut self) {
        let (size, count) = (self.bytes.size() % 40_000, usize::from(self.bytes.byte()));
        for _ in 0..count {
            self.alloc(size);
        }
    }

    fn free_many(&mut self) {
        let (first, count) = (self.bytes.pair(), usize::from(self.bytes.byte()));
        for _ in 0..count {
            let Some(index) = first.checked_rem(self.blocks.len()) else {
                return;
            };
            // SAFETY: the block has left the model.
            self.free_with(index, |p| unsafe { api::dealloc(p) });
        }
    }

    fn change_caches(&mut self) {
        let n = self.bytes.byte();
        let which = usize::from(n / 4).checked_rem(self.caches.len());
        match (n % 4, which) {
            (0, _) if self.caches.len() < 2 => {
                self.caches
                    .push(ctl::read("tcache.create").expect("a cache"));
            }
            (1 | 2, Some(which)) => {
                assert_eq!(tell("tcache.flush", Some(self.caches[which])), Ok(()));
            }
            (3, Some(which)) => {
                let number = self.caches.swap_remove(which);
                assert_eq!(tell("tcache.destroy", Some(number)), Ok(()));
            }
            _ => {}
        }
    }

    /// Moves the thread to this arena, or to the first.
    fn enter(&mut self, arena: Option<u32>) {
        if tell("thread.arena", Some(arena.unwrap_or(0))).is_ok() {
            self.mine = arena;
        }
    }

    fn change_arenas(&mut self) {
        let n = self.bytes.byte();
        let which = usize::from(n / 8).checked_rem(self.arenas.len());
        match (n % 8, which) {
            (0, _) if self.arenas.len() < 2 => {
                self.arenas
                    .push(ctl::read("arenas.create").expect("an arena"));
            }
            (1, Some(which)) => self.enter(Some(self.arenas[which])),
            (2, _) => self.enter(None),
            (3, Some(which)) => {
                let arena = self.arenas[which];
                self.drop_blocks_of(arena);
                assert_eq!(tell(&format!("arena.{arena}.reset"), None), Ok(()));
            }
            (4, Some(which)) if self.mine == Some(self.arenas[which]) => {
                let arena = self.arenas[which];
                assert!(tell(&format!("arena.{arena}.destroy"), None).is_err());
            }
            (4, Some(which)) => {
                let arena = self.arenas.swap_remove(which);
                self.drop_blocks_of(arena);
                assert_eq!(tell(&format!("arena.{arena}.destroy"), None), Ok(()));
                assert_eq!(
                    tell(&format!("arena.{arena}.reset"), None),
                    Err(Error::Fault)
                );
            }
            (5, Some(which)) => {
                let arena = self.arenas[which];
                assert_eq!(tell(&format!("arena.{arena}.purge"), None), Ok(()));
            }
            (6, Some(which)) => {
                let arena = self.arenas[which];
                assert_eq!(tell(&format!("arena.{arena}.decay"), None), Ok(()));
            }
            _ => {}
        }
    }

    /// Drops the blocks of an arena that is about to discard them, and flushes the caches that may
    /// have others of it.
    fn drop_blocks_of(&mut self, arena: u32) {
        threads::flush_cache().ok();
        for &number in &self.caches {
            assert_eq!(tell("tcache.flush", Some(number)), Ok(()));
        }
        let mut index = 0;
        while index < self.blocks.len() {
            if arenas::lookup(self.blocks[index].p) == Some(arena) {
                self.discarded += self.take_out(index).usable;
            } else {
                index += 1;
            }
        }
    }

    fn change_thread(&mut self) {
        let n = self.bytes.byte();
        match n % 6 {
            0 => threads::flush_cache().unwrap_or(()),
            1 => threads::enable_cache(n & 64 != 0).expect("a cache"),
            2 => threads::set_cache_max(1 << (n / 6 % 20)).expect("a cache"),
            3 => {
                let size = 1 << (n / 6 % 16);
                threads::set_max_cached(size, size * 4, usize::from(n)).expect("a cache");
            }
            4 => threads::idle(),
            _ => threads::enable_cache(true).expect("a cache"),
        }
    }

    fn return_memory(&mut self) {
        match self.bytes.byte() % 3 {
            0 => {
                api::trim();
            }
            1 => arenas::purge(arenas::ALL).expect("all arenas"),
            _ => arenas::decay(arenas::ALL).expect("all arenas"),
        }
    }

    fn set_decay(&mut self) {
        let n = self.bytes.byte();
        let times = [0, -1, 1, 10_000];
        api::set_decay(times[usize::from(n % 4)], times[usize::from(n / 4 % 4)]);
    }

    fn check_counts(&self) {
        if let Some((counts, before)) = self.counts {
            let counted = balance(counts).wrapping_sub(before);
            assert_eq!(counted, self.live + self.discarded, "counted by the thread");
        }
    }

    fn check_figures(&self) {
        let allocated = stats::now().allocated;
        assert_eq!(allocated, self.before + self.live, "counted by the process");
        assert!(stats::refresh());
        let figures = stats::with(|snapshot| {
            let t = &snapshot.totals;
            [t.allocated, t.active, t.resident, t.mapped]
        });
        assert!(figures.is_some_and(|f| f.is_sorted()), "{figures:?}");
    }
}

fn balance(counts: &threads::Counts) -> usize {
    counts.allocated().0.wrapping_sub(counts.freed().0) as usize
}

/// The alignment of a block of `size` bytes without a request for one.
fn natural(size: usize) -> usize {
    if size < 16 { 8 } else { 16 }
}

fn assert_intact(block: &Block) {
    // SAFETY: a live block.
    unsafe {
        assert_eq!(api::usable_size(block.p), block.usable, "{block:?}");
        pattern::assert_kept(block.p, block.usable, block.usable, block.id);
    }
}
