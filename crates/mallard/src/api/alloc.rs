//! Allocation.
//!
//! Up to [`TABLE_MAX`] bytes: one table look-up for the stack's place, one load of the thread's
//! pointer, one comparison, one load of the block. Above, a second table, and from 32 KiB up to
//! what caches hold, the position of the leading bit. `docs/design/fast-path.md` shows the
//! instructions.

use super::free::size_at;
use super::interval::errands;
use super::start::{self, JUNK_ALLOC, XMALLOC, ZERO, extras, start};
use crate::arena::{self, large, oversize};
use crate::cache::{self, counted, inside, life};
use crate::class::{
    self, CACHED_MAX, Class, LINE, MAX, MEDIUM_MAX, PAGE, Place, SLAB_MAX, TABLE_MAX, tailored,
};
use crate::die;
use crate::heap::{HEAP, NATURAL_MAX, advice};
use crate::space::region::fast_lookup;
use crate::space::{fallback, meta};
use crate::sys::atomic::{AtomicUsize, Ordering, settle};
use crate::sys::{errno, mem, time};
use core::ptr::null_mut;

/// A block of at least `size` bytes, aligned for its size (to 16 bytes from 16 bytes on). A block
/// for 0 bytes is a block like another. Null when memory is out or `size` exceeds [`super::MAX`].
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    if size <= TABLE_MAX {
        pop(size, class::place_of_small(size))
    } else {
        alloc_medium(size)
    }
}

/// A block from the thread's cache, if it has one at hand: the fast path alone, for fronts with a
/// slow path of their own.
#[inline(always)]
pub fn alloc_cached(size: usize) -> Option<*mut u8> {
    if size > TABLE_MAX {
        return None;
    }
    let block = cache::stack_at(class::place_of_small(size)).pop_to_write()?;
    Some(block as *mut u8)
}

#[inline(never)]
fn alloc_medium(size: usize) -> *mut u8 {
    match size <= MEDIUM_MAX {
        true => pop(size, class::place_of_medium(size)),
        false => alloc_long(size),
    }
}

// A function of its own, so that the shorter way does not jump to a part that both share. It runs
// before the first call has set code apart, so `layout.ld` keeps it with what all programs run.
#[inline(never)]
fn alloc_long(size: usize) -> *mut u8 {
    match size <= CACHED_MAX {
        true => pop(size, Place::of(Class::of(size))),
        false => alloc_large(size, PAGE, false),
    }
}

/// A block of at least `size` bytes from the thread's stack at `place`.
#[inline(always)]
fn pop(size: usize, place: Place) -> *mut u8 {
    match cache::stack_at(place).pop_to_write() {
        Some(block) => block as *mut u8,
        None => alloc_slow(size, place),
    }
}

/// The stack at `place` has nothing to give.
#[cold]
#[inline(never)]
fn alloc_slow(size: usize, place: Place) -> *mut u8 {
    start();
    let class = place.class();
    if tailored::is_watching() {
        tailored::note(class, size);
    }
    if extras() & !XMALLOC != 0 {
        return alloc_uncached(class);
    }
    if let Some(block) = take(class) {
        errands();
        return block as *mut u8;
    }
    alloc_again(class)
}

/// Nothing came: memory is out, or a fork is under way.
#[cold]
#[inline(never)]
fn alloc_again(class: Class) -> *mut u8 {
    if !inside::is_closed() {
        reclaim();
    } else if let Some(block) = fallback::alloc_of_class(class) {
        counted::allocated(class.size());
        return block as *mut u8;
    } else {
        time::nap();
    }
    match take(class) {
        Some(block) => block as *mut u8,
        None if inside::is_closed() => alloc_again(class),
        None => out_of_memory(class.size()),
    }
}

/// A block from the thread's cache, or straight from an arena for a thread that has none.
fn take(class: Class) -> Option<usize> {
    match life::current_or_new() {
        Some(cache) => counted::take(cache, class),
        None => take_from_arena(class),
    }
}

/// For threads without a cache, of which most programs have none.
#[cold]
#[inline(never)]
fn take_from_arena(class: Class) -> Option<usize> {
    let _inside = inside::enter()?;
    let mut one = [0];
    (life::arena_or_any()?.fill(class, &mut one) == 1).then_some(one[0])
}

/// Allocation in a process whose options ask that every block be filled.
#[cold]
#[inline(never)]
fn alloc_uncached(class: Class) -> *mut u8 {
    // Of threads without caches nobody knows how many there are.
    life::expect_company();
    let block = take_from_arena(class).or_else(|| {
        if inside::is_closed() {
            return fallback::alloc_of_class(class);
        }
        reclaim();
        take_from_arena(class)
    });
    match block {
        Some(block) => {
            counted::allocated(class.size());
            prepared(block as *mut u8, size_at(block))
        }
        None => out_of_memory(class.size()),
    }
}

/// Fills a new block, or what one grew by, as the options ask.
pub(super) fn prepared(block: *mut u8, size: usize) -> *mut u8 {
    let e = extras();
    if e & (ZERO | JUNK_ALLOC) != 0 {
        let value = if e & ZERO != 0 { 0 } else { 0xa5 };
        // SAFETY: the block is new, `size` bytes long and nobody's yet.
        unsafe { core::ptr::write_bytes(block, value, size) };
    }
    block
}

/// A block of whole pages that caches do not hold.
#[cold]
#[inline(never)]
fn alloc_large(size: usize, align: usize, zeroed: bool) -> *mut u8 {
    start();
    if size > MAX {
        return out_of_memory(size);
    }
    alloc_pages(large::Pages::of(size), align, zeroed)
}

fn alloc_pages(pages: large::Pages, align: usize, zeroed: bool) -> *mut u8 {
    let Some(inside) = inside::enter() else {
        return alloc_outside(pages.bytes(), align, zeroed);
    };
    let mine = life::arena();
    let arena = oversize::arena_for(pages, mine);
    let run = large::alloc_fit(pages, align, arena, zeroed).or_else(|| {
        // What lies in caches and stores is a part of the heap: it cannot help a larger request.
        if pages.bytes() > HEAP.totals().used * PAGE && !meta::is_starved() {
            return None;
        }
        reclaim();
        large::alloc_fit(pages, align, mine, zeroed)
    });
    cache::tick_for(pages.bytes());
    arena::interval::count(pages.bytes());
    drop(inside);
    errands();
    let Some(run) = run else {
        return out_of_memory(pages.bytes());
    };
    counted::allocated(pages.bytes());
    let block = run.addr as *mut u8;
    if zeroed {
        let is_clear = run.zeroed || clear_by_kernel(run.addr, pages);
        if !is_clear {
            // SAFETY: the block is new, and so long.
            unsafe { core::ptr::write_bytes(block, 0, pages.bytes()) };
        }
        return block;
    }
    prepared(block, pages.bytes())
}

/// A block while a fork is under way, of so many bytes.
#[cold]
#[inline(never)]
pub(super) fn alloc_outside(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    let Some(block) = fallback::alloc(bytes, align) else {
        // The fork will be over some time.
        drop(inside::enter_or_wait());
        return match zeroed {
            true => alloc_aligned_zeroed(bytes, align),
            false => alloc_aligned(bytes, align),
        };
    };
    counted::allocated(bytes);
    let block = block as *mut u8;
    if zeroed {
        // SAFETY: the block is new, and so long.
        unsafe { block.write_bytes(0, bytes) };
        return block;
    }
    prepared(block, bytes)
}

/// From this size on the kernel clears used memory, by taking it back: an option.
static CLEAR_BY_KERNEL: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the size from which on the kernel clears used memory for a zeroed block; none for never.
pub(super) fn clear_by_kernel_from(size: Option<usize>) {
    settle!(CLEAR_BY_KERNEL, size.unwrap_or(usize::MAX));
}

/// Has the kernel clear a new block, where that is asked for. Tells whether it did.
fn clear_by_kernel(block: usize, pages: large::Pages) -> bool {
    let bytes = pages.bytes();
    bytes >= CLEAR_BY_KERNEL.load(Ordering::Relaxed)
        && bytes.is_multiple_of(mem::os_page())
        && block.is_multiple_of(mem::os_page())
        && advice::clear(block, bytes)
}

/// As [`alloc`], with all of the block zero: programs use what `malloc_usable_size` tells of it,
/// and `rallocx` clears from there on when the block grows.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    if size > TABLE_MAX {
        return alloc_zeroed_medium(size);
    }
    let place = class::place_of_small(size);
    // What lies on a tailored class's stack may be longer than the class.
    if !place.is_tabled() {
        return alloc_zeroed_tailored(size);
    }
    match cache::stack_at(place).pop_to_write() {
        Some(block) => {
            let block = block as *mut u8;
            // SAFETY: the block is new, and as long as its class.
            unsafe { core::ptr::write_bytes(block, 0, place.size()) };
            block
        }
        None => zeroed(alloc_slow(size, place)),
    }
}

#[inline(never)]
fn alloc_zeroed_medium(size: usize) -> *mut u8 {
    match size <= SLAB_MAX {
        true => zeroed(alloc_medium(size)),
        false => alloc_zeroed_run(size),
    }
}

#[cold]
#[inline(never)]
fn alloc_zeroed_tailored(size: usize) -> *mut u8 {
    zeroed(alloc(size))
}

/// Clears a new block that caches hold to its end, unless it is null.
#[inline(never)]
pub(super) fn zeroed(block: *mut u8) -> *mut u8 {
    let Some(place) = fast_lookup(block.addr()) else {
        return zeroed_outside(block);
    };
    debug_assert!(place.size() > 0);
    // SAFETY: the block is new, and so long.
    unsafe { core::ptr::write_bytes(block, 0, place.size()) };
    block
}

/// The same of one that lies outside the first region, or is null.
#[cold]
#[inline(never)]
fn zeroed_outside(block: *mut u8) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: the block is new, and so long.
        unsafe { core::ptr::write_bytes(block, 0, size_at(block.addr())) };
    }
    block
}

/// A block of whole pages. Pages that come from the system are zero already, so they are asked for
/// where no cache would keep the block; a block that lies in the store is used before new memory
/// is.
#[inline(never)]
fn alloc_zeroed_run(size: usize) -> *mut u8 {
    if size > CACHED_MAX {
        return alloc_large(size, PAGE, true);
    }
    let class = Class::of(size);
    match life::current() {
        Some(cache) if !cache.keeps(class) => match cache.take_stored(class) {
            Some(block) => {
                counted::allocated(class.size());
                zeroed(block as *mut u8)
            }
            None => alloc_large(size, PAGE, true),
        },
        _ => zeroed(alloc(size)),
    }
}

/// As [`alloc`], at a multiple of `align`, which must be a power of two.
#[inline]
pub fn alloc_aligned(size: usize, align: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    if is_past_caches(size, align) {
        return alloc_large(size, align.max(PAGE), false);
    }
    let wanted = size;
    let size = class::aligned_size(size, align);
    if align > PAGE {
        alloc_on_boundary(size, align, wanted)
    } else if size <= TABLE_MAX {
        pop(size, class::tabled_place_of_small(size))
    } else {
        alloc_aligned_medium(size, align)
    }
}

/// The largest alignment that a block from a cache may have.
const ALIGN_MAX: usize = NATURAL_MAX;

/// Whether an aligned request is served by whole pages for its size or its alignment.
#[inline]
fn is_past_caches(size: usize, align: usize) -> bool {
    align > ALIGN_MAX || size > CACHED_MAX - ALIGN_MAX
}

/// As [`alloc_aligned`], with all of the block zero.
pub(super) fn alloc_aligned_zeroed(size: usize, align: usize) -> *mut u8 {
    let Some(bytes) = usable_for(size, align) else {
        return out_of_memory(size);
    };
    if align <= 8 || bytes > SLAB_MAX && align <= LINE {
        return alloc_zeroed(bytes);
    }
    if is_past_caches(size, align) {
        return alloc_large(bytes, align.max(PAGE), true);
    }
    zeroed(alloc_aligned(size, align))
}

/// The usable size of the block that [`alloc_aligned`] gives for a request; none for one that
/// cannot be. Up to [`SLAB_MAX`] bytes it is a region of a slab, up to [`CACHED_MAX`] one of a
/// class.
#[inline]
pub(super) fn usable_for(size: usize, align: usize) -> Option<usize> {
    if size > MAX || align > LARGEST_ALIGN {
        return None;
    }
    if !is_past_caches(size, align) {
        let size = class::aligned_size(size, align);
        let class = match align {
            ..=LEAST_ALIGN => Class::for_request(size),
            _ => Class::of(size),
        };
        return Some(class.size());
    }
    Some(large::Pages::of(size).bytes())
}

/// What blocks of every class that is long enough are aligned to.
const LEAST_ALIGN: usize = 16;

/// No address that a process can have is a multiple of more.
pub(super) const LARGEST_ALIGN: usize = 1 << 46;

/// A block of more than [`TABLE_MAX`] bytes at a multiple of `align`, which is a page at most.
#[inline(never)]
fn alloc_aligned_medium(size: usize, align: usize) -> *mut u8 {
    if size <= SLAB_MAX {
        pop(size, Place::of(Class::of(size)))
    } else if align <= LINE {
        alloc_medium(size)
    } else {
        alloc_on_boundary(size, align, size)
    }
}

/// A block of a multiple of `align`, which is more than a page or, in whole pages, more than a
/// line: the next of its class, which stands right most often if it was asked for in this way; then
/// one of those that were freed lately, or a new one. So many bytes are `wanted` of it.
#[inline(never)]
fn alloc_on_boundary(size: usize, align: usize, wanted: usize) -> *mut u8 {
    let class = Class::of(size);
    let place = Place::of(class);
    if class.is_slab() {
        debug_assert!((class.shape().align as usize).is_multiple_of(align));
        return pop(size, place);
    }
    let stack = cache::stack_at(place);
    if let Some(block) = stack.pop() {
        if block.is_multiple_of(align) {
            return block as *mut u8;
        }
        // There is the room that it had.
        stack.push(block);
    }
    match life::current().and_then(|cache| cache.take_aligned(class, align, wanted)) {
        Some(block) => {
            counted::allocated(class.size());
            block as *mut u8
        }
        None => alloc_pages(large::Pages::of(size).wanting(wanted), align, false),
    }
}

/// Gathers what lies free in caches and stores, so that a second try may succeed.
#[cold]
pub(super) fn reclaim() {
    if let Some(_inside) = inside::enter() {
        life::flush_current();
        arena::drain(true);
        if meta::is_starved() {
            feed();
        }
    }
}

/// Pages of the pieces that records get from the heap: as many as it has, of these.
const FED: [usize; 3] = [64, 16, 4];

/// Gives a piece of the heap to records, for which the system has no memory.
#[cold]
#[inline(never)]
fn feed() {
    // Not the thread's own, which the program may destroy with all that is in it.
    let heap = arena::any().map(|arena| arena.heap());
    let mut pieces = FED.iter();
    let Some((run, bytes)) =
        pieces.find_map(|&pages| Some((heap?.alloc_for(pages, pages, PAGE)?, pages * PAGE)))
    else {
        return;
    };
    if !run.zeroed {
        // SAFETY: the run is nobody's, and so long.
        unsafe { core::ptr::write_bytes(run.addr as *mut u8, 0, bytes) };
    }
    meta::adopt(run.addr, bytes);
}

/// Tells the caller that there is none, in the C library's way too.
#[cold]
pub(super) fn out_of_memory(size: usize) -> *mut u8 {
    if extras() & XMALLOC != 0 && start::options().xmalloc {
        die!("out of memory: {size} bytes wanted, and the option xmalloc is on");
    }
    errno::set(libc::ENOMEM);
    null_mut()
}
