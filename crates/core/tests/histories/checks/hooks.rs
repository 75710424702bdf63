//! A manual arena whose extent hooks lie: they refuse, and give memory that is misaligned, taken,
//! or nobody's. Refusals must do no harm, and an impossible answer must end the process with one
//! line.

use super::bytes::Bytes;
use super::child::forked;
use super::heap::apart;
use super::pattern;
use core::ffi::{c_uint, c_void};
use mallard_core::api::{self, arenas, arenas::ExtentHooks, extended, extended::Flags, threads};
use mallard_core::sys::mem;
use std::collections::{BTreeMap, VecDeque};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

const CHUNK: usize = 2 << 20;
/// The most memory that the hooks give.
const GIVEN_MAX: usize = 128 << 20;
/// The end of what a process can map.
const END: usize = 1 << 47;

/// What the hooks have given, and how they will answer: a byte for each call, 0 where there are no
/// more, for an honest answer.
struct Book {
    extents: BTreeMap<usize, usize>,
    answers: VecDeque<u8>,
    /// Whether answers may be such that the process has to end.
    may_end: bool,
}

static BOOK: Mutex<Book> = Mutex::new(Book {
    extents: BTreeMap::new(),
    answers: VecDeque::new(),
    may_end: false,
});

fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next answer. Some hooks use the allocator.
fn answer() -> u8 {
    let answer = book().answers.pop_front().unwrap_or(0);
    if answer & 128 != 0 {
        let p = api::alloc(usize::from(answer) * 10);
        // SAFETY: allocated here.
        unsafe { api::dealloc(p) };
    }
    answer & 127
}

/// Whether the hook refuses this call.
fn refuses() -> bool {
    answer() % 4 == 1
}

impl Book {
    /// Whether the range was given and not taken back; it may be a part of what was.
    fn has(&self, at: usize, len: usize) -> bool {
        let below = self.extents.range(..=at).next_back();
        below.is_some_and(|(_, &end)| at + len <= end)
    }

    fn give(&mut self, at: usize, len: usize) {
        self.extents.insert(at, at + len);
    }

    fn take(&mut self, at: usize, len: usize) {
        assert!(self.has(at, len), "{at:#x} was not given");
        let below = self.extents.range(..=at).next_back();
        let (start, end) = below.map_or((0, 0), |(&start, &end)| (start, end));
        self.extents.remove(&start);
        if start < at {
            self.give(start, at - start);
        }
        if at + len < end {
            self.give(at + len, end - at - len);
        }
        mem::release(at, len);
    }
}

unsafe extern "C" fn alloc(
    _: *mut ExtentHooks,
    _: *mut c_void,
    size: usize,
    align: usize,
    zeroed: *mut bool,
    committed: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let answer = answer();
    let mut book = book();
    if answer % 16 == 1 || book.extents.iter().map(|(at, end)| end - at).sum::<usize>() > GIVEN_MAX
    {
        return null_mut();
    }
    let lie = if book.may_end { answer % 16 } else { 0 };
    let at = match lie {
        2 => mem::map_aligned(size + align, align).map(|at| at + 4096),
        3 => book.extents.keys().next().copied(),
        4 => book.extents.iter().next_back().map(|(_, end)| end - CHUNK),
        5 => Some(api::alloc(1).addr() / CHUNK * CHUNK),
        6 => Some(END * 2),
        7 => Some(0_usize.wrapping_sub(CHUNK)),
        _ => None,
    };
    if let Some(at) = at {
        return at as *mut c_void;
    }
    let Some(at) = mem::map_aligned(size, align) else {
        return null_mut();
    };
    // SAFETY: by the manual both are valid.
    unsafe {
        *zeroed = answer & 16 == 0;
        if !*zeroed {
            (at as *mut u8).write_bytes(0xaa, size);
        }
        *committed = answer & 32 == 0 || !mem::decommit(at, size);
    }
    book.give(at, size);
    at as *mut c_void
}

unsafe extern "C" fn dalloc(
    _: *mut ExtentHooks,
    at: *mut c_void,
    size: usize,
    _: bool,
    _: c_uint,
) -> bool {
    if refuses() {
        return true;
    }
    book().take(at.addr(), size);
    false
}

unsafe extern "C" fn destroy(
    _: *mut ExtentHooks,
    at: *mut c_void,
    size: usize,
    _: bool,
    _: c_uint,
) {
    book().take(at.addr(), size);
}

/// Checks a part of an extent; returns its address, or `None` if the hook refuses.
fn part(at: *mut c_void, size: usize, offset: usize, len: usize) -> Option<usize> {
    assert!(offset + len <= size && len > 0);
    assert!(book().has(at.addr() + offset, len));
    (!refuses()).then_some(at.addr() + offset)
}

macro_rules! part_hook {
    ($name:ident, $act:path) => {
        unsafe extern "C" fn $name(
            _: *mut ExtentHooks,
            at: *mut c_void,
            size: usize,
            offset: usize,
            len: usize,
            _: c_uint,
        ) -> bool {
            !part(at, size, offset, len).is_some_and(|at| $act(at, len))
        }
    };
}
part_hook!(commit, mem::commit);
part_hook!(decommit, mem::decommit);
part_hook!(purge_lazy, mem::discard_lazily);
part_hook!(purge_forced, mem::discard);

unsafe extern "C" fn split(
    _: *mut ExtentHooks,
    at: *mut c_void,
    size: usize,
    first: usize,
    second: usize,
    _: bool,
    _: c_uint,
) -> bool {
    assert!(first + second == size && book().has(at.addr(), size));
    refuses()
}

unsafe extern "C" fn merge(
    _: *mut ExtentHooks,
    a: *mut c_void,
    first: usize,
    b: *mut c_void,
    second: usize,
    _: bool,
    _: c_uint,
) -> bool {
    assert_eq!(a.addr() + first, b.addr());
    assert!(book().has(a.addr(), first) && book().has(b.addr(), second));
    refuses()
}

/// A table with these hooks missing.
fn table(missing: u8) -> ExtentHooks {
    let has = |bit: u8| missing & 1 << bit == 0;
    ExtentHooks {
        alloc: Some(alloc),
        dalloc: has(0).then_some(dalloc),
        destroy: Some(destroy),
        commit: has(1).then_some(commit),
        decommit: has(2).then_some(decommit),
        purge_lazy: has(3).then_some(purge_lazy),
        purge_forced: has(4).then_some(purge_forced),
        split: has(5).then_some(split),
        merge: has(6).then_some(merge),
    }
}

/// Runs a history, in a child if the hooks may lie so that the process has to end.
pub fn hooks(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    if first % 2 == 0 {
        return apart(|| run(rest, false));
    }
    apart(|| {
        api::expect_forks();
        let ended = forked(|| run(rest, true));
        let is_told = |line: &str| line.starts_with("mallard: extent hook gave");
        assert!(
            ended.went_on() || ended.last_line().is_some_and(is_told),
            "{ended:?}"
        );
    });
}

/// Destroys an arena without hooks. The next arena gets its page heap, which keeps its addresses,
/// and must not serve from them if it has hooks.
fn leave_a_page_heap_with_addresses() {
    let arena = arenas::create().expect("an arena");
    let flags = Flags::NONE.arena(arena).no_cache();
    for size in [100, CHUNK / 2, 3 * CHUNK] {
        let p = extended::alloc_with(size, flags);
        assert!(!p.is_null());
        // SAFETY: a live block.
        unsafe { extended::dealloc_with(p, flags) };
    }
    // SAFETY: no block of it is left.
    unsafe { arenas::destroy(arena) }.expect("nobody is in the arena");
}

struct Block {
    p: *mut u8,
    usable: usize,
    id: u64,
}

impl Block {
    fn check(&self) {
        // SAFETY: a live block.
        unsafe { pattern::assert_kept(self.p, self.usable, self.usable, self.id) };
    }
}

fn run(bytes: &[u8], may_end: bool) {
    let mut bytes = Bytes::new(bytes);
    // The tables outlive their arena.
    let mut tables = [table(bytes.byte()), table(bytes.byte())];
    let answers = (0..bytes.byte()).map(|_| bytes.byte()).collect();
    *book() = Book {
        extents: BTreeMap::new(),
        answers,
        may_end,
    };
    leave_a_page_heap_with_addresses();
    // SAFETY: the table is valid until the arena is destroyed.
    let arena = unsafe { arenas::create_with(&mut tables[0]) }.expect("an arena");
    let flags = Flags::NONE.arena(arena).no_cache();
    let mut blocks: Vec<Block> = Vec::new();
    let (mut id, mut live) = (0, 0);
    while !bytes.is_empty() {
        let op = bytes.byte();
        let pick = usize::from(op / 16).checked_rem(blocks.len());
        match (op % 16, pick) {
            (0..6, _) if live < GIVEN_MAX => {
                let (size, align, zero) = (bytes.size() + 1, bytes.align(), op & 64 != 0);
                let flags = if zero { flags.zero() } else { flags };
                let p = extended::alloc_with(size, flags.align(align));
                if p.is_null() {
                    continue;
                }
                assert!(p.addr().is_multiple_of(align));
                assert!(book().has(p.addr(), size), "{p:p} is from elsewhere");
                blocks.push(filled(p, &mut id, if zero { 0 } else { usize::MAX }));
                live += size;
            }
            (6..9, Some(index)) => {
                let block = blocks.swap_remove(index);
                block.check();
                live = live.saturating_sub(block.usable);
                // SAFETY: a live block, which has left the model.
                unsafe { extended::dealloc_with(block.p, flags) };
            }
            (9 | 10, Some(index)) => {
                let size = bytes.size() + 1;
                let Block { p, usable, id: old } = blocks[index];
                // SAFETY: a live block; it stays where the result is null.
                let to = unsafe { extended::realloc_with(p, size, flags.zero()) };
                if to.is_null() {
                    continue;
                }
                // SAFETY: the new block is at least this long.
                unsafe { pattern::assert_kept(to, usable, usable.min(size), old) };
                blocks[index] = filled(to, &mut id, usable);
            }
            (11, _) => arenas::purge(arena).expect("an arena"),
            (12, _) => arenas::decay(arena).expect("an arena"),
            (13, _) => {
                let (dirty, muzzy) = (
                    [0, -1, 1, 1000][usize::from(op / 16 % 4)],
                    [0, -1][usize::from(op / 64 % 2)],
                );
                arenas::set_decay_times(arena, Some(dirty), Some(muzzy)).expect("an arena");
            }
            (14, _) => {
                blocks.drain(..).for_each(|block| block.check());
                live = 0;
                // SAFETY: its blocks are in no cache, and not used from here on.
                unsafe { arenas::reset(arena) }.expect("an arena");
            }
            (15, _) => {
                let next = &raw mut tables[usize::from(op / 16 % 2)];
                // SAFETY: the table is valid until the arena is destroyed; both serve one book.
                unsafe { arenas::set_hooks(arena, next) }.expect("an arena");
            }
            _ => {}
        }
    }
    blocks.iter().for_each(Block::check);
    let _ = threads::flush_cache();
    // SAFETY: no block of it is in a cache, or used from here on.
    unsafe { arenas::destroy(arena) }.expect("nobody is in the arena");
    assert!(
        book().extents.is_empty(),
        "not given back: {:x?}",
        book().extents
    );
}

/// Fills a block; from byte `zeroed` on, it has to be zero.
fn filled(p: *mut u8, id: &mut u64, zeroed: usize) -> Block {
    *id += 1;
    // SAFETY: a live block, of this usable size.
    unsafe {
        let usable = api::usable_size(p);
        pattern::assert_all(p, zeroed.min(usable), usable, 0, "zeroed block");
        pattern::fill(p, usable, *id);
        Block { p, usable, id: *id }
    }
}
