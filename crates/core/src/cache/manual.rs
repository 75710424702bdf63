//! Manual caches: they belong to no thread, have a number, and serve the calls that name it.
//!
//! The program must ensure that only one thread at a time uses such a cache; then it works like
//! that thread's own. Numbers are looked up without a lock in a table that grows in pieces. The
//! table is changed under the registry's lock (`life`). The next cache reuses a freed number.
//!
//! Each call decides the arena of such a cache: the one it names, or the calling thread's.

use super::length::ROOM;
use super::{DEFAULT_CLASS_MAX, Stack, ThreadCache, current};
use crate::arena::{Arena, Misuse};
use crate::class::Class;
use crate::space::meta;
use crate::sys::atomic::{AtomicPtr, Ordering};
use crate::sys::published::Published;

/// The most manual caches: what fits into the flags of a call.
pub const MANUAL_CACHES_MAX: usize = 4093;
/// How many caches a piece of the table has. Pieces are made when they are needed.
const PIECE_CACHES: usize = 64;

type Piece = [AtomicPtr<ThreadCache>; PIECE_CACHES];

static TABLE: [Published<Piece>; MANUAL_CACHES_MAX.div_ceil(PIECE_CACHES)] =
    [const { Published::none() }; MANUAL_CACHES_MAX.div_ceil(PIECE_CACHES)];

/// Placeholder for a cache that is being made.
const TAKEN: *mut ThreadCache = core::ptr::dangling_mut();

/// Which numbers are in use.
pub struct Numbers {
    /// All numbers from here on were never used.
    end: usize,
    /// No number below this one is free.
    free_from: usize,
}

impl Numbers {
    pub const NONE: Numbers = Numbers {
        end: 0,
        free_from: 0,
    };

    /// All numbers from here on were never used.
    pub fn end(&self) -> u32 {
        self.end as u32
    }
}

fn place(number: usize) -> Option<&'static AtomicPtr<ThreadCache>> {
    let piece = TABLE.get(number / PIECE_CACHES)?.get()?;
    Some(&piece[number % PIECE_CACHES])
}

/// The cache with this number.
pub fn get(number: u32) -> Option<&'static ThreadCache> {
    let at = place(number as usize)?.load(Ordering::Acquire);
    if at == TAKEN {
        return None;
    }
    // SAFETY: null, or a cache that the program has not destroyed.
    unsafe { at.as_ref() }
}

/// Returns a number for a new cache. `None` when there are no more, or no memory for the table.
pub fn number(numbers: &mut Numbers) -> Option<u32> {
    let is_free = |&n: &usize| place(n).is_some_and(|p| p.load(Ordering::Relaxed).is_null());
    let number = (numbers.free_from..numbers.end)
        .find(is_free)
        .unwrap_or(numbers.end);
    if number >= MANUAL_CACHES_MAX {
        return None;
    }
    if place(number).is_none() {
        let room = meta::take(size_of::<Piece>())?.cast::<Piece>();
        // SAFETY: the record has the size of a piece, and nothing else uses it.
        let piece = unsafe {
            room.write([const { AtomicPtr::new(core::ptr::null_mut()) }; PIECE_CACHES]);
            room.as_ref()
        };
        TABLE[number / PIECE_CACHES].set(piece);
    }
    numbers.end = numbers.end.max(number + 1);
    numbers.free_from = number + 1;
    place(number)?.store(TAKEN, Ordering::Relaxed);
    Some(number as u32)
}

/// Maps the number to the cache, or to none.
pub fn put(numbers: &mut Numbers, number: u32, cache: Option<&'static ThreadCache>) {
    let number = number as usize;
    let Some(place) = place(number) else { return };
    match cache {
        Some(cache) => place.store(core::ptr::from_ref(cache).cast_mut(), Ordering::Release),
        None => {
            place.store(core::ptr::null_mut(), Ordering::Relaxed);
            numbers.free_from = numbers.free_from.min(number);
        }
    }
}

/// Removes the cache with this number from the table.
pub fn take(numbers: &mut Numbers, number: u32) -> Option<&'static ThreadCache> {
    let cache = get(number)?;
    put(numbers, number, None);
    Some(cache)
}

/// Calls `f` with each manual cache.
fn each(numbers: &Numbers, f: impl FnMut(&ThreadCache)) {
    let all = (0..numbers.end).filter_map(|number| get(number as u32));
    all.for_each(f);
}

/// In the child of a fork: abandons the blocks of caches that another thread was changing, and
/// frees the numbers of those that another thread was making.
pub fn after_fork(numbers: &mut Numbers) {
    each(numbers, |cache| {
        cache.peek.end();
        if cache.busy.is_up() {
            cache.abandon();
        }
    });
    for number in 0..numbers.end {
        if place(number).is_some_and(|place| place.load(Ordering::Relaxed) == TAKEN) {
            put(numbers, number as u32, None);
        }
    }
}

/// Sets a cache up to hold what the options say, even where threads have no caches.
pub fn set_out(cache: &ThreadCache) {
    cache.front.cache.set(None);
    cache
        .class_max
        .set(DEFAULT_CLASS_MAX.load(Ordering::Relaxed));
    cache.enabled.set(true);
    cache.set_largest();
}

/// Sets the arena of a cache for the calls that follow: this one, or the calling thread's.
pub fn serve_here(cache: &ThreadCache, arena: Option<&'static Arena>) {
    if let Some(arena) = arena.or_else(current::arena_or_any) {
        cache.arena.set(arena);
    }
}

impl ThreadCache {
    /// Returns a block of a class. `None` when memory is out.
    pub fn take(&self, class: Class) -> Option<usize> {
        self.stack(class).pop().or_else(|| self.refill(class))
    }

    /// Takes a block of a class back. Ends the process if it is one of the two that came last.
    pub fn put(&self, class: Class, block: usize) {
        let stack = self.stack(class);
        if stack.is_on_top(block) {
            Misuse::Double(class.size()).die(block);
        }
        if !stack.put(block) {
            self.push_full(class, block);
        }
    }

    /// Drops all its blocks without returning them.
    #[cold]
    #[inline(never)]
    fn abandon(&self) {
        self.front.stacks.iter().for_each(Stack::abandon);
        let arrays = self.arrays.iter();
        arrays.for_each(|array| array.store(0, Ordering::Relaxed));
        self.seen.iter().for_each(|seen| seen.set(0));
        self.long.set(0);
        self.room.shrink(&ROOM, self.room.get());
        self.busy.restore(0);
    }
}
