//! The rings of a thread in a hardened process, through which its freed blocks go to its stacks.
//!
//! They lie behind the thread's zeros (`counted`), which every thread of such a process uses.

use super::current::front;
use super::{ThreadCache, counted};
use crate::class::{Class, StackOffset};
use crate::hardened;
use crate::hardened::ring::Rings;
use crate::sys::atomic::Ordering;
use crate::sys::tls;

/// The calling thread's cache, and its rings, if it has both.
#[inline(always)]
pub fn with_rings() -> Option<(&'static ThreadCache, &'static Rings)> {
    let front = front();
    let cache = counted::cache_of(front)?;
    if !hardened::is_on() {
        return None;
    }
    let zeros = core::ptr::from_ref(front);
    // SAFETY: the thread counts, so this is its zeros; in a hardened process, rings lie behind them
    // ([`zeros::begin`](super::zeros::begin)).
    Some((cache, unsafe { &*zeros.add(1).cast::<Rings>() }))
}

/// Takes a free block back from the calling thread, by way of its ring, with a number that an
/// attacker cannot know. The block was looked at: it is not in the cache.
#[inline(always)]
pub fn put(
    (cache, rings): (&'static ThreadCache, &Rings),
    class: Class,
    size: usize,
    block: usize,
    random: usize,
) {
    cache.counts.count_freed(size);
    // SAFETY: a hardened process has no other slab classes than those of the table.
    let out = unsafe { rings.exchange(class, size, block, random) };
    if out != 0 && !cache.stack_at(StackOffset::of(class)).put(out) {
        cache.push_full(class, out);
    }
}

impl ThreadCache {
    /// The rings of this cache, if it has some.
    #[inline(always)]
    fn rings(&self) -> Option<&Rings> {
        let zeros = self.zeros.load(Ordering::Acquire);
        if zeros.is_null() || !hardened::is_on() {
            return None;
        }
        // SAFETY: in a hardened process, rings lie behind all zeros as long as these
        // do.
        Some(unsafe { &*zeros.wrapping_add(1).cast::<Rings>() })
    }

    /// Flushes the blocks of all rings to the arena.
    #[inline(always)]
    pub(super) fn empty_rings(&self) {
        if hardened::are_any()
            && let Some(rings) = self.rings()
        {
            self.empty(rings);
        }
    }

    #[cold]
    #[inline(never)]
    fn empty(&self, rings: &Rings) {
        let is_gone = self.thread.load(Ordering::Relaxed) != tls::thread();
        for class in Class::slabs() {
            rings.take_all(class, is_gone, |block| {
                self.arena().flush(class, &mut [block]);
            });
        }
    }

    /// Calls `f` with the blocks of a class in the ring, as [`ThreadCache::each_hint`] does.
    pub(super) fn each_in_ring(&self, class: Class, f: &mut dyn FnMut(usize)) {
        if let Some(rings) = self.rings() {
            rings.each_hint(class, f);
        }
    }
}
