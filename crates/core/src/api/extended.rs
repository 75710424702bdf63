//! Allocation with flags: jemalloc's `mallocx` family.
//!
//! [`Flags`] says how a call differs from a plain one: the alignment, zeroed memory, and the cache
//! and arena to use. A call without flags is a plain call and costs one more comparison; all others
//! are handled here, from the same parts as `alloc`, `free` and `resize`.
//!
//! Zeroed blocks are zero up to their usable size, because `rallocx` clears only from there on when
//! they grow.

use super::arenas;
use super::blocks::alloc::{
    ALIGN_MAX, alloc, alloc_aligned, alloc_aligned_zeroed, alloc_outside, out_of_memory,
    spend_filled, usable_for, zeroed,
};
use super::blocks::free::{class_at, dealloc, dealloc_direct, dealloc_sized, size_at};
use super::blocks::hardened::{self as of_hardened, Resized};
use super::blocks::resize::{enter_with, grown};
use super::extras::{self, XMALLOC, extras};
use super::pending::do_pending;
use super::start::start;
use crate::arena;
use crate::arena::large::{self, Reach};
use crate::arena::oversize;
use crate::arena::pages::Pages;
use crate::cache::{ThreadCache, counted, current, inside, manual};
use crate::class::{CACHED_MAX, Class, MAX, SLAB_MAX, tailored};
use crate::die;
use crate::hardened;
use crate::heap::Contents;
use crate::prof;
use crate::space::chunk::CHUNK;
use crate::sys::page::LINE;
use core::ptr::null_mut;

/// How a call differs from a plain one, packed as in jemalloc's header: six bits for the logarithm
/// of the alignment, a bit for zeroed memory, twelve bits for a cache and twelve for an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u32);

const ZERO: u32 = 0x40;
const CACHE_SHIFT: u32 = 8;
const ARENA_SHIFT: u32 = 20;
const TWELVE_BITS: u32 = 0xfff;
/// The cache's bits for "none", and the offset of the numbers of explicit caches.
const CACHE_NONE: u32 = 1;
const CACHE_BIAS: u32 = 2;

impl Flags {
    pub const NONE: Flags = Flags(0);

    /// From the bits that a C caller passes. The bit that jemalloc does not use is ignored.
    #[inline(always)]
    pub const fn from_bits(bits: i32) -> Self {
        Flags(bits as u32)
    }

    /// Aligns to a multiple of `align`, a power of two.
    pub const fn align(self, align: usize) -> Self {
        Flags(self.0 & !63 | align.trailing_zeros())
    }

    /// Zeroes new memory.
    pub const fn zero(self) -> Self {
        Flags(self.0 | ZERO)
    }

    /// Bypasses the thread's cache.
    pub const fn no_cache(self) -> Self {
        self.cache_bits(CACHE_NONE)
    }

    /// Uses the explicit cache with this number.
    pub const fn cache(self, number: u32) -> Self {
        self.cache_bits(number + CACHE_BIAS)
    }

    const fn cache_bits(self, bits: u32) -> Self {
        Flags(self.0 & !(TWELVE_BITS << CACHE_SHIFT) | (bits & TWELVE_BITS) << CACHE_SHIFT)
    }

    /// Uses the arena with this number.
    pub const fn arena(self, number: u32) -> Self {
        let bits = (number + 1) & TWELVE_BITS;
        Flags(self.0 & !(TWELVE_BITS << ARENA_SHIFT) | bits << ARENA_SHIFT)
    }

    #[inline(always)]
    fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// The alignment; 1 if none was requested.
    fn alignment(self) -> usize {
        1 << (self.0 & 63)
    }

    /// Whether new bytes have to be zero, by the flag or by the option.
    fn zeroes(self) -> bool {
        self.0 & ZERO != 0 || extras::zeroes()
    }

    /// What the call needs of the contents of a new block.
    fn contents(self) -> Contents {
        Contents::zeros_if(self.zeroes())
    }

    /// The cache that the call goes through. An arena that is named without a cache is used
    /// directly.
    fn way(self) -> Way {
        match self.0 >> CACHE_SHIFT & TWELVE_BITS {
            0 if self.arena_number().is_some() => Way::Direct,
            0 => Way::Usual,
            CACHE_NONE => Way::Direct,
            bits => Way::Cache(bits - CACHE_BIAS),
        }
    }

    fn arena_number(self) -> Option<u32> {
        (self.0 >> ARENA_SHIFT & TWELVE_BITS).checked_sub(1)
    }
}

/// The cache that a call goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The thread's own.
    Usual,
    /// None.
    Direct,
    /// The manual cache with this number.
    Cache(u32),
}

/// Allocates a block of at least `size` bytes as the flags ask. Returns null when memory is out,
/// when size or alignment are impossible, and when the arena does not exist.
#[inline(always)]
pub fn alloc_with(size: usize, flags: Flags) -> *mut u8 {
    if flags.is_plain() {
        alloc(size)
    } else {
        alloc_flagged(size, flags)
    }
}

#[inline(never)]
fn alloc_flagged(size: usize, flags: Flags) -> *mut u8 {
    let align = flags.alignment();
    if size > MAX || align > ALIGN_MAX {
        return out_of_memory(size);
    }
    match flags.way() {
        Way::Usual if flags.zeroes() => alloc_aligned_zeroed(size, align),
        Way::Usual => alloc_aligned(size, align),
        way => alloc_past_cache(way, size, flags),
    }
}

/// Allocates a block that does not come from the thread's own cache.
fn alloc_past_cache(way: Way, size: usize, flags: Flags) -> *mut u8 {
    start();
    let Some(inside) = inside::enter() else {
        let bytes = usable_for(size, flags.alignment()).unwrap_or(size);
        return match alloc_outside(bytes, flags.alignment(), flags.contents()) {
            Some(block) => block,
            None => alloc_past_cache(way, size, flags),
        };
    };
    let block = match way {
        Way::Cache(number) if serves_from_caches(flags) => alloc_through(number, size, flags),
        _ => {
            let arena = arena_for(flags, size);
            arenas::alloc_in(arena, size, flags.alignment(), flags.contents())
        }
    };
    drop(inside);
    do_pending();
    if prof::is_counting() {
        spend_filled(block, size)
    } else {
        block
    }
}

/// Whether calls with these flags may use manual caches.
fn serves_from_caches(flags: Flags) -> bool {
    let arena = flags.arena_number().unwrap_or(0) as u16;
    extras() & !XMALLOC == 0 && !arena::is_hardened(arena)
}

/// The number of the arena for a call.
fn arena_for(flags: Flags, size: usize) -> u32 {
    flags.arena_number().unwrap_or_else(|| {
        let mine = current::arena();
        oversize::arena_for(Pages::of(size), mine) as u32
    })
}

/// Allocates through a manual cache, which fills from the named arena or the thread's.
fn alloc_through(number: u32, size: usize, flags: Flags) -> *mut u8 {
    let cache = manual_cache(number);
    let arena = match flags.arena_number() {
        None => None,
        Some(number) => match arena::numbered(number as usize) {
            None => return out_of_memory(size),
            found => found,
        },
    };
    let align = flags.alignment();
    let Some(bytes) = usable_for(size, align).filter(|&bytes| bytes <= CACHED_MAX) else {
        return arenas::alloc_in(arena_for(flags, size), size, align, flags.contents());
    };
    manual::serve_here(cache, arena);
    let class = Class::for_request(bytes);
    // Regions of slabs are aligned for their size; a run may be by chance.
    let block = if align <= LINE || class.is_slab() {
        cache.take(class)
    } else {
        cache.take_aligned(class, align, class.size())
    };
    let Some(block) = block else {
        return arenas::alloc_in(arena_for(flags, size), size, align, flags.contents());
    };
    counted::allocated(bytes);
    if flags.zeroes() {
        zeroed(block as *mut u8)
    } else {
        block as *mut u8
    }
}

fn manual_cache(number: u32) -> &'static ThreadCache {
    match manual::get(number) {
        Some(cache) => cache,
        None => die!("use of the cache {number}, which was not made or was destroyed"),
    }
}

/// The usable size of the block that [`alloc_with`] would return; 0 if the request is impossible.
#[inline(never)]
pub fn usable_size_for(size: usize, flags: Flags) -> usize {
    start();
    tailored::keep_as_they_are();
    if hardened::is_on() {
        let is_possible = size <= MAX && flags.alignment() <= ALIGN_MAX;
        return if is_possible { size } else { 0 };
    }
    usable_for(size, flags.alignment()).unwrap_or(0)
}

/// Frees a block into the cache that the flags name.
///
/// # Safety
/// As for [`dealloc`].
#[inline(always)]
pub unsafe fn dealloc_with(p: *mut u8, flags: Flags) {
    if flags.is_plain() {
        // SAFETY: the caller's promise.
        unsafe { dealloc(p) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { dealloc_flagged(p, flags) }
    }
}

/// Like [`dealloc_with`], for a block of known size.
///
/// # Safety
/// As for [`dealloc_with`]; the size is at least what was requested with these flags, and at most
/// the usable size.
#[inline(always)]
pub unsafe fn dealloc_sized_with(p: *mut u8, size: usize, flags: Flags) {
    if flags.is_plain() {
        // SAFETY: the caller's promise.
        unsafe { dealloc_sized(p, size) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { dealloc_flagged(p, flags) }
    }
}

#[inline(never)]
unsafe fn dealloc_flagged(p: *mut u8, flags: Flags) {
    // The arena does not matter here: blocks know theirs. If one was named without a cache, the
    // thread's cache can take the block.
    match Flags(flags.0 & !(TWELVE_BITS << ARENA_SHIFT)).way() {
        // SAFETY: the caller's promise.
        Way::Usual => unsafe { dealloc(p) },
        Way::Cache(number) if extras() & !XMALLOC == 0 => dealloc_through(number, p),
        // SAFETY: the caller's promise.
        _ => unsafe { dealloc_direct(p) },
    }
}

/// Frees a block into a manual cache.
fn dealloc_through(number: u32, p: *mut u8) {
    if p.is_null() {
        return;
    }
    let cache = manual_cache(number);
    match class_at(p.addr()) {
        // SAFETY: the caller's promise.
        Class::NONE => unsafe { dealloc(p) },
        class => {
            manual::serve_here(cache, None);
            cache.put(class, p.addr());
            counted::freed(class.size());
        }
    }
}

/// Resizes the block to at least `size` bytes, aligned as the flags ask, keeps its contents and may
/// move it. With the flag for zeroed memory, what lies beyond the old usable size is zero. Returns
/// null on failure; the block is then unchanged.
///
/// # Safety
/// The block came from this allocator and has not been freed; unless the result is null, the old
/// pointer is no longer used.
pub unsafe fn realloc_with(p: *mut u8, size: usize, flags: Flags) -> *mut u8 {
    if p.is_null() {
        return alloc_with(size, flags);
    }
    if hardened::are_any()
        && let Some(old) = of_hardened::size_of(p.addr())
    {
        // SAFETY: the caller's promise.
        return unsafe { realloc_hardened(p, old, size, flags) };
    }
    let (align, added) = (flags.alignment(), flags.contents());
    let Some(new) = usable_for(size, align) else {
        return out_of_memory(size);
    };
    let at = p.addr();
    let old = size_at(at);
    if at.is_multiple_of(align) {
        if new == old {
            return p;
        }
        if old > SLAB_MAX
            && new > SLAB_MAX
            && let Some(_inside) = enter_with(at)
        {
            let lifted = prof::lifted(at);
            if large::resize_in_place(at, Pages::of(new), added, Reach::Backed) {
                return grown(p, old, new, added, lifted, size);
            }
            if let Some(moved) = relocated(at, new, flags) {
                return grown(moved as *mut u8, old, new, added, lifted, size);
            }
            if let Some(lifted) = lifted {
                prof::put_down(lifted, at, None);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { copy(p, old, size, flags) }
}

/// Like [`realloc_with`], for a hardened block of `old` bytes.
#[cold]
#[inline(never)]
unsafe fn realloc_hardened(p: *mut u8, old: usize, size: usize, flags: Flags) -> *mut u8 {
    let at = p.addr();
    let may_stay = at.is_multiple_of(flags.alignment()) && !flags.zeroes();
    if may_stay && matches!(of_hardened::resize(at, size), Resized::InPlace) {
        return p;
    }
    // SAFETY: the caller's promise.
    unsafe { copy(p, old, size, flags) }
}

/// Moves the block's pages, unless the flags rule that out.
fn relocated(at: usize, new: usize, flags: Flags) -> Option<usize> {
    if flags.arena_number().is_some() || flags.alignment() > CHUNK {
        return None;
    }
    large::relocate(at, Pages::of(new), flags.contents(), oversize::arena_for)
}

/// Moves the block by copying.
unsafe fn copy(p: *mut u8, old: usize, size: usize, flags: Flags) -> *mut u8 {
    // Fresh pages are zero already, so that a long block is not cleared by writing to all of it.
    let is_zero = flags.zeroes();
    let is_cleared = is_zero && size > CACHED_MAX;
    let flags = if is_cleared {
        flags
    } else {
        Flags(flags.0 & !ZERO)
    };
    let to = alloc_with(size, flags);
    if to.is_null() {
        return null_mut();
    }
    let new = size_at(to.addr());
    // SAFETY: both blocks are at least this long, and they are different blocks; the caller gives
    // up the old one.
    unsafe {
        core::ptr::copy_nonoverlapping(p, to, old.min(new));
        if is_zero && !is_cleared && new > old {
            core::ptr::write_bytes(to.add(old), 0, new - old);
        }
        dealloc_with(p, flags);
    }
    to
}

/// Resizes the block in place, to `size + extra` bytes or, failing that, to `size`. Returns its
/// usable size, which is below `size` on failure.
///
/// # Safety
/// The block came from this allocator and has not been freed; bytes beyond the returned size are no
/// longer used.
pub unsafe fn resize_in_place(p: *mut u8, size: usize, extra: usize, flags: Flags) -> usize {
    let at = p.addr();
    let old = size_at(at);
    let max = size.saturating_add(extra).min(MAX);
    if hardened::are_any() && of_hardened::size_of(at).is_some() {
        let may_change = at.is_multiple_of(flags.alignment()) && !flags.zeroes();
        let fits =
            |&size: &usize| may_change && matches!(of_hardened::resize(at, size), Resized::InPlace);
        return [max, size].into_iter().find(fits).unwrap_or(old);
    }
    // A slab's regions all have one size, and a run of pages cannot become one of them.
    let fixed = old <= SLAB_MAX || max <= SLAB_MAX;
    if fixed || size > MAX || !at.is_multiple_of(flags.alignment()) {
        return old;
    }
    let Some(_inside) = enter_with(at) else {
        return old;
    };
    let (min, max) = (Pages::of(size), Pages::of(max));
    let resized = |pages: Pages| {
        let lifted = prof::lifted(at);
        if large::resize_in_place(at, pages, flags.contents(), Reach::Any) {
            grown(p, old, pages.bytes(), flags.contents(), lifted, size);
            return Some(pages.bytes());
        }
        if let Some(lifted) = lifted {
            prof::put_down(lifted, at, None);
        }
        None
    };
    let change = if old < max.bytes() {
        resized(max).or_else(|| (old < min.bytes() && min != max).then(|| resized(min))?)
    } else if old > max.bytes() {
        resized(max)
    } else {
        None
    };
    change.unwrap_or(old)
}
