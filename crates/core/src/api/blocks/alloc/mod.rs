//! Allocation.
//!
//! Up to [`TABLE_MAX`] bytes: one table lookup for the stack's offset, one load of the thread's
//! pointer, one comparison, one load of the block. Above, a second table, and from 32 KiB up to
//! what caches hold, the position of the leading bit. `docs/design/fast-path.md` shows the
//! instructions.

mod hardened;
mod supply;

use super::free::size_at;
use super::hardened::is_wanted as is_hardened_wanted;
use crate::api::extras::{XMALLOC, extras, prepared};
use crate::api::pending::do_pending;
use crate::api::start::start;
use crate::arena::pages::Pages;
use crate::cache::{self, ThreadCache, company, counted, current};
use crate::class::{
    self, CACHED_MAX, Class, MAX, MEDIUM_MAX, SLAB_MAX, StackOffset, TABLE_MAX, hidden, tailored,
};
use crate::hardened::word::Family;
use crate::hardened::{are_any as are_any_hardened, is_on as are_all_hardened};
use crate::heap::{Contents, NATURAL_MAX};
use crate::prof;
use crate::space::segment::fast_lookup;
use crate::space::zero_size;
use crate::sys::page::{LINE, PAGE};

pub(in crate::api) use hardened::alloc_in as alloc_hardened_in;
use supply::{
    ALIGN_MIN, alloc_large, alloc_pages, spend_if_on, spend_or_guard_if_on, take, take_from_arena,
    try_again,
};
pub(in crate::api) use supply::{alloc_outside, out_of_memory, reclaim};

/// Allocates a block of at least `size` bytes, aligned for its size (to 16 bytes from 16 bytes on).
/// 0 bytes is a valid size. Returns null when memory is out or `size` exceeds [`crate::api::MAX`].
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    if size <= TABLE_MAX {
        pop(size, class::offset_of_small(size))
    } else {
        alloc_medium(size)
    }
}

/// Returns a block from the thread's cache, if it has one at hand: the fast path alone, for front
/// ends with a slow path of their own, which goes on with [`alloc_missed`].
#[inline(always)]
pub fn alloc_cached(size: usize) -> Result<*mut u8, Missed> {
    if size > TABLE_MAX {
        return Err(Missed(StackOffset::of(Class::NONE)));
    }
    let offset = class::offset_of_small(size);
    match cache::stack_at(offset).pop_to_write() {
        Some(block) => Ok(block as *mut u8),
        None => Err(Missed(offset)),
    }
}

/// Where [`alloc_cached`] found no block: the offset of the stack, that of no class for requests
/// that it does not serve.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Missed(StackOffset);

/// Like [`alloc_missed`], for functions of this family.
#[inline(always)]
pub fn alloc_missed_as(size: usize, missed: Missed, family: Family) -> *mut u8 {
    if are_any_hardened() {
        return alloc_missed_hardened(size, missed, family);
    }
    alloc_missed(size, missed)
}

#[cold]
#[inline(never)]
fn alloc_missed_hardened(size: usize, missed: Missed, family: Family) -> *mut u8 {
    if is_hardened_wanted() && size != 0 {
        hardened::alloc(size, ALIGN_MIN, family)
    } else {
        alloc_missed(size, missed)
    }
}

/// Allocates what [`alloc_cached`] did not. The same as [`alloc`], without a second look at what
/// was found empty.
#[inline(always)]
pub fn alloc_missed(size: usize, Missed(offset): Missed) -> *mut u8 {
    if size > TABLE_MAX {
        alloc_medium(size)
    } else {
        alloc_slow(size, offset)
    }
}

#[inline(never)]
fn alloc_medium(size: usize) -> *mut u8 {
    if size > MEDIUM_MAX {
        return alloc_long(size);
    }
    let offset = class::offset_of_medium(size);
    match cache::stack_at(offset).pop_to_write() {
        Some(block) => block as *mut u8,
        None => alloc_medium_slow(size, offset),
    }
}

// A separate function, so that the shorter path does not jump to a shared part. It runs before the
// first call has separated the code, so `layout.txt` keeps it with the code that all programs run.
#[inline(never)]
fn alloc_long(size: usize) -> *mut u8 {
    if size <= CACHED_MAX {
        pop_tabled(size, StackOffset::of(Class::of(size)))
    } else {
        alloc_large(size, PAGE, Contents::Any)
    }
}

/// Returns a block of at least `size` bytes from the thread's stack at `offset`.
#[inline(always)]
fn pop(size: usize, offset: StackOffset) -> *mut u8 {
    match cache::stack_at(offset).pop_to_write() {
        Some(block) => block as *mut u8,
        None => alloc_slow(size, offset),
    }
}

/// Like [`pop`], with an offset that is not looked up in the tables that the profiler clears.
#[inline(always)]
fn pop_tabled(size: usize, offset: StackOffset) -> *mut u8 {
    match cache::stack_at(offset).pop_to_write() {
        Some(block) => spend_or_guard_if_on(block, size),
        None => alloc_slow(size, offset),
    }
}

/// Like [`pop_tabled`], for a request at a multiple of `align`, which blocks of the class have.
#[inline(always)]
fn pop_aligned(size: usize, offset: StackOffset, align: usize) -> *mut u8 {
    match cache::stack_at(offset).pop_to_write() {
        Some(block) => spend_or_guard_if_on(block, size),
        None => alloc_aligned_slow(size, align, offset),
    }
}

#[cold]
#[inline(never)]
fn alloc_aligned_slow(size: usize, align: usize, offset: StackOffset) -> *mut u8 {
    start();
    if is_hardened_wanted() {
        return hardened::alloc(size, align, Family::Any);
    }
    alloc_slow(size, offset)
}

/// The slow path: the stack at `offset` is empty, or the profiler samples and `offset` is hidden,
/// or the thread counts its bytes.
#[cold]
#[inline(never)]
fn alloc_slow(size: usize, offset: StackOffset) -> *mut u8 {
    if offset.is_hidden() {
        pop_and_spend(size, hidden::offset_of_small(size))
    } else {
        alloc_empty(size, offset)
    }
}

/// Like [`alloc_slow`], for a request above [`TABLE_MAX`] bytes.
#[cold]
#[inline(never)]
fn alloc_medium_slow(size: usize, offset: StackOffset) -> *mut u8 {
    if offset.is_hidden() {
        pop_and_spend(size, hidden::offset_of_medium(size))
    } else {
        alloc_empty(size, offset)
    }
}

/// The thread's pointer leads to an empty stack.
#[inline(always)]
fn alloc_empty(size: usize, offset: StackOffset) -> *mut u8 {
    match counted::cache() {
        Some(cache) => pop_and_count(size, offset, cache),
        None => refill(size, offset),
    }
}

/// Like [`pop`], for a thread that counts its bytes and owns this cache.
#[cold]
#[inline(never)]
fn pop_and_count(size: usize, offset: StackOffset, cache: &ThreadCache) -> *mut u8 {
    if are_any_hardened() {
        return pop_hardened(size, offset, cache);
    }
    pop_plain_and_count(size, offset, cache)
}

#[inline(always)]
fn pop_plain_and_count(size: usize, offset: StackOffset, cache: &ThreadCache) -> *mut u8 {
    match counted::pop(cache, offset) {
        Some(block) => block as *mut u8,
        None => refill(size, offset),
    }
}

/// Like [`pop_and_count`], in a process with hardened blocks.
#[cold]
#[inline(never)]
fn pop_hardened(size: usize, offset: StackOffset, cache: &ThreadCache) -> *mut u8 {
    if are_all_hardened() && !offset.is_none() {
        return hardened::alloc_from(cache, size, ALIGN_MIN, Family::Malloc);
    }
    if is_hardened_wanted() && !offset.is_none() {
        return hardened::alloc(size, ALIGN_MIN, Family::Malloc);
    }
    pop_plain_and_count(size, offset, cache)
}

/// Like [`pop`], and counts the request for the profiler.
#[inline(always)]
fn pop_and_spend(size: usize, offset: StackOffset) -> *mut u8 {
    let (stack, countdown) = cache::stack_and_countdown(offset);
    match stack.pop_to_write() {
        Some(block) if countdown.spend(size) => block as *mut u8,
        Some(block) => prof::due(size, block as *mut u8),
        None => refill(size, offset),
    }
}

/// The stack at `offset` is empty.
#[cold]
#[inline(never)]
fn refill(size: usize, offset: StackOffset) -> *mut u8 {
    start();
    if offset.is_none() {
        return alloc_nothing();
    }
    if is_hardened_wanted() {
        return hardened::alloc(size, ALIGN_MIN, Family::Malloc);
    }
    let class = offset.class();
    if tailored::is_watching() {
        tailored::note(class, size);
    }
    if extras() & !XMALLOC != 0 {
        return alloc_uncached(class, size);
    }
    if let Some(block) = take(class) {
        do_pending();
        return spend_or_guard_if_on(block, size);
    }
    alloc_again(class)
}

/// Allocates a block of 0 bytes.
#[cold]
#[inline(never)]
fn alloc_nothing() -> *mut u8 {
    match zero_size::alloc() {
        Some(block) => block as *mut u8,
        None => alloc(1),
    }
}

/// Counts a new block for the profiler that is cleared or filled already; null is allowed.
#[cold]
#[inline(never)]
pub(in crate::api) fn spend_filled(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        block
    } else {
        prof::spend(block, size)
    }
}

/// The next tries, after memory was out or while a fork is under way.
#[cold]
#[inline(never)]
fn alloc_again(class: Class) -> *mut u8 {
    match try_again(class, take) {
        Some(block) => block as *mut u8,
        None => out_of_memory(class.size()),
    }
}

/// Allocates in a process whose options ask for every block to be filled.
#[cold]
#[inline(never)]
fn alloc_uncached(class: Class, size: usize) -> *mut u8 {
    // Threads without caches are not counted, so there may be several.
    company::expect();
    let block = counted_from_arena(class).or_else(|| try_again(class, counted_from_arena));
    match block {
        Some(block) => {
            let block = spend_or_guard_if_on(block, size);
            prepared(block, size_at(block.addr()))
        }
        None => out_of_memory(class.size()),
    }
}

fn counted_from_arena(class: Class) -> Option<usize> {
    let block = take_from_arena(class)?;
    counted::allocated(class.size());
    Some(block)
}

/// Like [`alloc`], with all of the block zero: programs use it up to `malloc_usable_size`, and
/// `rallocx` clears only from there on when the block grows.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    if size > TABLE_MAX {
        return alloc_zeroed_medium(size);
    }
    let offset = class::offset_of_small(size);
    // Blocks on a tailored class's stack may be longer than the class.
    if !offset.is_tabled() {
        return alloc_zeroed_tailored(size);
    }
    match cache::stack_at(offset).pop_to_write() {
        Some(block) => {
            let block = block as *mut u8;
            // SAFETY: the block is new, and as long as its class.
            unsafe { core::ptr::write_bytes(block, 0, offset.size()) };
            block
        }
        None => zeroed(alloc_slow(size, offset)),
    }
}

#[inline(never)]
fn alloc_zeroed_medium(size: usize) -> *mut u8 {
    if size <= SLAB_MAX {
        zeroed(alloc_medium(size))
    } else {
        alloc_zeroed_run(size)
    }
}

#[cold]
#[inline(never)]
fn alloc_zeroed_tailored(size: usize) -> *mut u8 {
    zeroed(alloc(size))
}

/// Clears a new block that caches hold to its end; null is allowed.
#[inline(never)]
pub(in crate::api) fn zeroed(block: *mut u8) -> *mut u8 {
    let Some(offset) = fast_lookup(block.addr()) else {
        return zeroed_outside(block);
    };
    if offset.is_none() {
        return zeroed_outside(block);
    }
    // SAFETY: the block is new, and this long.
    unsafe { core::ptr::write_bytes(block, 0, offset.size()) };
    block
}

/// Like [`zeroed`], for a block outside the first segment, a sampled one, or null.
#[cold]
#[inline(never)]
fn zeroed_outside(block: *mut u8) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: the block is new, and this long.
        unsafe { core::ptr::write_bytes(block, 0, size_at(block.addr())) };
    }
    block
}

/// Allocates a zeroed block of whole pages. Pages from the system are zero already, so this asks
/// for those if no cache would keep the block; but a block in the transfer cache goes before new
/// memory.
#[inline(never)]
fn alloc_zeroed_run(size: usize) -> *mut u8 {
    if size > CACHED_MAX || is_hardened_wanted() {
        return alloc_large(size, PAGE, Contents::Zeros);
    }
    let class = Class::of(size);
    match current::cache() {
        Some(cache) if !cache.keeps(class) => match cache.take_transferred(class) {
            Some(block) => {
                counted::allocated(class.size());
                zeroed(spend_if_on(block, size))
            }
            None => alloc_large(size, PAGE, Contents::Zeros),
        },
        _ => zeroed(alloc(size)),
    }
}

/// Like [`alloc`], at a multiple of `align`, which must be a power of two.
#[inline]
pub fn alloc_aligned(size: usize, align: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    if is_past_caches(size, align) {
        return alloc_large(size, align.max(PAGE), Contents::Any);
    }
    let wanted = size;
    let size = class::aligned_size(size, align);
    if align > PAGE {
        alloc_on_boundary(size, align, wanted)
    } else if size <= TABLE_MAX {
        pop_aligned(size, class::tabled_offset_of_small(size), align)
    } else {
        alloc_aligned_medium(size, align, wanted)
    }
}

/// The largest alignment that a block from a cache may have.
const CACHED_ALIGN_MAX: usize = NATURAL_MAX;

/// Whether an aligned request is served by whole pages for its size or its alignment.
#[inline]
fn is_past_caches(size: usize, align: usize) -> bool {
    align > CACHED_ALIGN_MAX || size > CACHED_MAX - CACHED_ALIGN_MAX
}

/// Like [`alloc_aligned`], with all of the block zero.
pub(in crate::api) fn alloc_aligned_zeroed(size: usize, align: usize) -> *mut u8 {
    let Some(bytes) = usable_for(size, align) else {
        return out_of_memory(size);
    };
    start();
    if is_hardened_wanted() && !is_past_caches(size, align) && size != 0 {
        return zeroed(hardened::alloc(size, align, Family::Any));
    }
    let bytes = if is_hardened_wanted() { size } else { bytes };
    if align <= 8 || bytes > SLAB_MAX && align <= LINE {
        return alloc_zeroed(bytes);
    }
    if is_past_caches(size, align) {
        return alloc_large(bytes, align.max(PAGE), Contents::Zeros);
    }
    zeroed(alloc_aligned(size, align))
}

/// The usable size of the block that [`alloc_aligned`] returns for a request; `None` for an
/// impossible one. Up to [`SLAB_MAX`] bytes it is that of a slab region, up to [`CACHED_MAX`] that
/// of a class.
#[inline]
pub(in crate::api) fn usable_for(size: usize, align: usize) -> Option<usize> {
    if size > MAX || align > ALIGN_MAX {
        return None;
    }
    if !is_past_caches(size, align) {
        let size = class::aligned_size(size, align);
        let class = match align {
            ..=ALIGN_MIN => Class::for_request(size),
            _ => Class::of(size),
        };
        return Some(class.size());
    }
    Some(Pages::of(size).bytes()).filter(|&bytes| bytes <= MAX)
}

/// The largest alignment: no address of a process is a multiple of more.
pub(in crate::api) const ALIGN_MAX: usize = 1 << 46;

/// Allocates a block of more than [`TABLE_MAX`] bytes at a multiple of `align`, which is at most a
/// page.
#[inline(never)]
fn alloc_aligned_medium(size: usize, align: usize, wanted: usize) -> *mut u8 {
    if size <= SLAB_MAX {
        pop_aligned(size, StackOffset::of(Class::of(size)), align)
    } else if align <= LINE {
        alloc_medium(size)
    } else {
        alloc_on_boundary(size, align, wanted)
    }
}

/// Allocates a block at a multiple of `align`, which is more than a page or, for whole pages, more
/// than a line. Tries the next of its class first, which mostly fits if it was allocated here too;
/// then one of those freed lately, or a new one. The program will use `wanted` bytes of it.
#[inline(never)]
fn alloc_on_boundary(size: usize, align: usize, wanted: usize) -> *mut u8 {
    if is_hardened_wanted() {
        return hardened::alloc(wanted, align, Family::Any);
    }
    let class = Class::of(size);
    let offset = StackOffset::of(class);
    if class.is_slab() {
        debug_assert!((class.shape().align as usize).is_multiple_of(align));
        return pop_tabled(size, offset);
    }
    let stack = cache::stack_at(offset);
    if let Some(block) = stack.pop() {
        if block.is_multiple_of(align) {
            return spend_if_on(block, wanted);
        }
        // There is room: the block was just popped.
        stack.put(block);
    }
    match current::cache().and_then(|cache| cache.take_aligned(class, align, wanted)) {
        Some(block) => {
            counted::allocated(class.size());
            spend_if_on(block, wanted)
        }
        None => {
            let pages = Pages::of(size).wanting(wanted);
            alloc_pages(pages, align, Contents::Any, wanted)
        }
    }
}
