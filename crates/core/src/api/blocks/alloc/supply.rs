//! Where new blocks come from when a thread has none at hand: its cache's refill, an arena, the
//! page heap; a second try after all caches gave back what they keep; what a fork in progress
//! leaves; and the answer when memory is out.

use crate::api::blocks::hardened as of_hardened;
use crate::api::extras::{XMALLOC, clear_by_kernel, extras, prepared, zeroes};
use crate::api::pending::do_pending;
use crate::api::start::{self, start};
use crate::arena::pages::Pages;
use crate::arena::{self, large, oversize};
use crate::cache::{self, counted, current, inside, life};
use crate::class::{Class, MAX};
use crate::die;
use crate::hardened::word::Family;
use crate::hardened::{self, run};
use crate::heap::{Contents, PAGE_HEAPS, RunRequest};
use crate::prof;
use crate::space::{fallback, meta};
use crate::sys::page::PAGE;
use crate::sys::{errno, poison, time};
use crate::upkeep;
use core::ptr::null_mut;

/// Takes a block for a hardened one, when the thread has none at hand.
pub fn refilled(class: Class) -> Option<usize> {
    start();
    let block = take(class).or_else(|| try_again(class, take));
    do_pending();
    block
}

/// Like [`spend_if_on`], of a hardened block: a guarded one may be given in its place.
#[cold]
#[inline(never)]
pub fn spend_aligned(block: usize, size: usize, align: usize) -> *mut u8 {
    if align > ALIGN_MIN {
        return prof::spend(block as *mut u8, size);
    }
    match cache::countdown() {
        Some(countdown) if countdown.spend(size) => block as *mut u8,
        Some(_) => prof::due(size, block as *mut u8),
        None => prof::spend(block as *mut u8, size),
    }
}

/// Counts a new block for the profiler, if bytes are counted.
#[inline]
pub fn spend_if_on(block: usize, size: usize) -> *mut u8 {
    if prof::is_counting() {
        prof::spend(block as *mut u8, size)
    } else {
        block as *mut u8
    }
}

/// Like [`spend_if_on`], and may give a guarded block in its place, which is aligned as its class
/// says.
#[inline]
pub fn spend_or_guard_if_on(block: usize, size: usize) -> *mut u8 {
    if prof::is_counting() {
        prof::spend_or_guard(block as *mut u8, size)
    } else {
        block as *mut u8
    }
}

/// Takes a block until there is one, or until memory is out: a try that a fork may have refused
/// says nothing about that.
#[cold]
#[inline(never)]
pub fn try_again(class: Class, take: fn(Class) -> Option<usize>) -> Option<usize> {
    loop {
        let forks = inside::forks();
        if !inside::is_closed() {
            reclaim();
        } else if let Some(block) = fallback::alloc_of_class(class) {
            counted::allocated(class.size());
            return Some(block);
        } else if inside::is_forking() {
            return None;
        } else {
            time::nap();
        }
        let block = take(class);
        if block.is_some() || !inside::is_closed() && inside::forks() == forks {
            return block;
        }
    }
}

/// Returns a block from the thread's cache, or from an arena if the thread has none.
pub fn take(class: Class) -> Option<usize> {
    match life::current_or_new() {
        Some(cache) => counted::take(cache, class),
        None => take_from_arena(class),
    }
}

/// For threads without a cache; most programs have none.
#[cold]
#[inline(never)]
pub fn take_from_arena(class: Class) -> Option<usize> {
    let _inside = inside::enter()?;
    let mut one = [0];
    (current::arena_or_any()?.fill(class, &mut one) == 1).then_some(one[0])
}

/// Allocates a block of whole pages that caches do not hold.
#[cold]
#[inline(never)]
pub fn alloc_large(size: usize, align: usize, contents: Contents) -> *mut u8 {
    start();
    if size > MAX {
        return out_of_memory(size);
    }
    if !of_hardened::is_wanted() {
        return alloc_pages(Pages::of(size), align, contents, size);
    }
    if run::bytes_for(size) > MAX {
        return out_of_memory(size);
    }
    alloc_pages(of_hardened::pages_for(size), align, contents, size)
}

/// The program asked for `size` bytes.
pub fn alloc_pages(pages: Pages, align: usize, contents: Contents, size: usize) -> *mut u8 {
    let contents = if zeroes() { Contents::Zeros } else { contents };
    let Some(inside) = inside::enter() else {
        return match alloc_outside(pages.bytes(), align, contents) {
            Some(block) => block,
            None => alloc_pages(pages, align, contents, size),
        };
    };
    let mine = current::arena();
    let arena = oversize::arena_for(pages, mine);
    let run = large::alloc_fit(pages, align, arena, contents).or_else(|| {
        // Blocks in thread caches and transfer caches are a part of the heap: they cannot help a
        // larger request.
        if pages.bytes() > PAGE_HEAPS.totals().used * PAGE && !meta::is_starved() {
            return None;
        }
        reclaim();
        large::alloc_fit(pages, align, mine, contents)
    });
    upkeep::tick_for(pages.bytes());
    arena::interval::count(pages.bytes());
    drop(inside);
    do_pending();
    let Some(run) = run else {
        return out_of_memory(pages.bytes());
    };
    counted::allocated(pages.bytes());
    let block = spend_if_on(run.addr, size);
    if contents == Contents::Zeros {
        let is_clear = run.zeroed || clear_by_kernel(run.addr, pages);
        if !is_clear {
            // SAFETY: the block is new, and this long.
            unsafe { core::ptr::write_bytes(block, 0, pages.bytes()) };
        }
    } else {
        prepared(block, pages.bytes());
    }
    if hardened::are_any() {
        of_hardened::dress(block.addr(), size, Family::Any);
    }
    block
}

/// Allocates a block of `bytes` bytes while a fork is under way; `None` after it, when the usual
/// way is open again.
#[cold]
#[inline(never)]
pub fn alloc_outside(bytes: usize, align: usize, contents: Contents) -> Option<*mut u8> {
    let Some(block) = fallback::alloc(bytes, align) else {
        // Wait until the fork is over.
        drop(inside::enter_or_wait());
        return None;
    };
    counted::allocated(bytes);
    let block = block as *mut u8;
    if contents == Contents::Zeros {
        // SAFETY: the block is new, and this long.
        unsafe { block.write_bytes(0, bytes) };
        return Some(block);
    }
    Some(prepared(block, bytes))
}

/// Blocks of every class that is at least this long are aligned to it.
pub const ALIGN_MIN: usize = 16;

/// Collects free blocks from thread caches and transfer caches, so that a second try may succeed.
#[cold]
pub fn reclaim() {
    if let Some(_inside) = inside::enter() {
        current::flush();
        arena::drain(arena::Drain::All);
        if meta::is_starved() {
            feed();
        }
    }
}

/// Sizes in pages of the pieces that records get from the heap; the first that is available is
/// used.
const FED: [usize; 3] = [64, 16, 4];

/// Gives records a piece of the heap when the system has no memory for them.
#[cold]
#[inline(never)]
fn feed() {
    // Not from the thread's own arena, which the program may destroy with everything in it.
    let heap = arena::any().map(|arena| arena.heap());
    let mut pieces = FED.iter();
    let Some((run, bytes)) = pieces
        .find_map(|&pages| Some((heap?.alloc_run(RunRequest::new(pages, PAGE))?, pages * PAGE)))
    else {
        return;
    };
    poison::used(run.addr, bytes);
    if !run.zeroed {
        // SAFETY: nothing else uses the run, and it is this long.
        unsafe { core::ptr::write_bytes(run.addr as *mut u8, 0, bytes) };
    }
    meta::adopt(run.addr, bytes);
}

/// Reports the failure to the caller, by `errno` too, or ends the process if `xmalloc` is on.
#[cold]
pub fn out_of_memory(size: usize) -> *mut u8 {
    if extras() & XMALLOC != 0 && start::options().xmalloc {
        die!("out of memory: {size} bytes wanted, and the option xmalloc is on");
    }
    errno::set(libc::ENOMEM);
    null_mut()
}
