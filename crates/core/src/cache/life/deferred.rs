//! What threads could not do while a fork was under way, and do later.
//!
//! Blocks that were freed meanwhile wait on a list ([`put_by`]), and caches of threads that ended
//! stay where they are ([`leave`]); the parent of the fork deals with both ([`settle`]), or the
//! next GC pass of any thread. Those passes also flush the caches that the fork left
//! behind in the child ([`adopt_orphan`]).

use super::registry::{self, ORPHANS, dissolve, end_struck_off};
use crate::arena::{self, large};
use crate::cache::counted::{self, events};
use crate::cache::{ThreadCache, current, inside};
use crate::class::Class;
use crate::hardened;
use crate::space::segment::PageRecord;
use crate::space::{Segment, fallback};
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::upkeep::{self, background_state, threads};

/// Whether threads have ended while a fork was under way.
static ANY_LEFT: AtomicBool = AtomicBool::new(false);
/// Blocks freed while a fork was under way, linked through their first words.
static PUT_BY: AtomicUsize = AtomicUsize::new(0);

/// A `fn(usize) -> bool` that frees a block if it is a small sampled one, and takes the mark off a
/// large one; null while nothing was ever sampled.
static FREE_SAMPLED: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the function that frees sampled blocks that were put by. It returns whether it freed the
/// block; if not, the block is an ordinary one now.
pub fn on_sampled(free: fn(usize) -> bool) {
    FREE_SAMPLED.store(free as *mut (), Ordering::Release);
}

fn free_sampled(block: usize) -> bool {
    let free = FREE_SAMPLED.load(Ordering::Acquire);
    // SAFETY: only `on_sampled` writes it, and only with such a function.
    !free.is_null() && unsafe { core::mem::transmute::<*mut (), fn(usize) -> bool>(free)(block) }
}

/// Makes all running threads count their bytes from their next GC pass.
pub fn count_everywhere() {
    ORPHANS.store(true, Ordering::Relaxed);
}

/// Makes the next GC pass of any thread do the work that a fork has deferred.
pub fn leave_work() {
    ORPHANS.store(true, Ordering::Release);
}

/// Defers the free of a block until no fork is under way. For threads that are outside.
#[cold]
#[inline(never)]
pub fn put_by(block: usize) {
    let mut first = PUT_BY.load(Ordering::Relaxed);
    loop {
        // SAFETY: the block was freed, is longer than a pointer and as aligned.
        unsafe { (block as *mut usize).write(first) };
        match PUT_BY.compare_exchange(first, block, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => first = now,
        }
    }
    settle_unless_closed();
}

/// Settles if the fork ended before it could see what the calling thread deferred.
fn settle_unless_closed() {
    if !inside::is_closed() {
        settle();
    }
}

/// Does the work that a fork has deferred. For threads that are outside.
#[cold]
pub fn settle() {
    let mut next = PUT_BY.swap(0, Ordering::AcqRel);
    while next != 0 {
        let block = next;
        // SAFETY: `put_by` wrote it, and nothing else uses the block.
        next = unsafe { (block as *const usize).read() };
        if hardened::are_any() {
            // Free blocks of hardened slabs are zero.
            // SAFETY: as above.
            unsafe { (block as *mut usize).write(0) };
        }
        free(block);
    }
    end_all_left();
}

fn free(block: usize) {
    let Some(_inside) = inside::enter() else {
        return put_by(block);
    };
    match Segment::find(block).map(|segment| segment.class_of(block)) {
        Some(Class::NONE) => {
            if hardened::are_any() && free_hardened(block) {
                return;
            }
            if !free_sampled(block) {
                large::free(block);
            }
        }
        Some(class) => arena::give_to_owner(class, block),
        None => {
            fallback::free(block);
        }
    }
}

/// Frees a hardened block of a slab, unless it is sampled; returns whether it did.
#[cold]
#[inline(never)]
fn free_hardened(block: usize) -> bool {
    let record = Segment::find(block).map(|segment| segment.record_of(block));
    let Some(PageRecord::Slab(slab)) = record else {
        return false;
    };
    arena::give_to_owner(arena::class_of_slab(slab), block);
    true
}

/// Leaves the calling thread's cache to the thread that forks.
#[cold]
#[inline(never)]
pub(super) fn leave(cache: &'static ThreadCache) {
    cache.thread.store(0, Ordering::Release);
    ANY_LEFT.store(true, Ordering::Release);
    settle_unless_closed();
}

/// Ends the caches of threads that ended while a fork was under way.
fn end_all_left() {
    if !ANY_LEFT.swap(false, Ordering::AcqRel) {
        return;
    }
    loop {
        let Some(_inside) = inside::enter() else {
            ANY_LEFT.store(true, Ordering::Release);
            return leave_work();
        };
        let Some(cache) = registry::take_left() else {
            break;
        };
        end_struck_off(cache);
    }
    keep_up(threads::count());
}

/// A thread has ended, and `left` remain: does what a background thread that stopped with it left.
#[inline(always)]
pub(super) fn keep_up(left: u32) {
    if background_state::thread_ended(left) {
        give_rest();
    }
}

#[cold]
#[inline(never)]
fn give_rest() {
    if let Some(_inside) = inside::enter() {
        upkeep::give_rest();
    }
}

/// Flushes one of the caches that a fork left behind; returns whether there was one. Each thread
/// calls it now and then.
pub fn adopt_orphan() -> bool {
    ORPHANS.load(Ordering::Relaxed) && adopt_one()
}

#[cold]
#[inline(never)]
fn adopt_one() -> bool {
    if events::are_any()
        && let Some(cache) = current::cache()
    {
        counted::enter(cache);
    }
    let orphan = registry::take_orphan();
    settle();
    orphan.map(dissolve).is_some()
}
