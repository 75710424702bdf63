//! What a cache may hold: its largest class, its limits by class, and whether it is enabled.
//!
//! The options give the defaults ([`configure`]); a thread changes its own cache by `mallctl`
//! (`thread.tcache.*`). Every change flushes what the cache may no longer hold.

use super::inside::Busy;
use super::length::{self, max_blocks};
use super::{CacheDefaults, DEFAULT_CLASS_MAX, DEFAULT_ENABLED, MAY_HOLD, ThreadCache};
use crate::class::{Class, SLAB_CLASSES, tailored};
use crate::sys::atomic::Ordering;

/// Sets what the options say about caches. Called before the first cache is made.
pub fn configure(defaults: CacheDefaults) {
    let largest = defaults.max_size;
    let class = Class::of(largest.min(crate::class::CACHED_MAX));
    // The limit need not be a class: a class with larger blocks is excluded.
    let class = class.0 - (class.size() > largest) as u8;
    DEFAULT_CLASS_MAX.store(class, Ordering::Relaxed);
    DEFAULT_ENABLED.store(defaults.is_enabled, Ordering::Relaxed);
    MAY_HOLD.store(defaults.may_hold, Ordering::Relaxed);
}

impl ThreadCache {
    /// The largest class that caches keep by default; [`Class::NONE`] if none.
    pub fn largest() -> Class {
        Class(DEFAULT_CLASS_MAX.load(Ordering::Relaxed))
    }

    /// Whether the cache keeps blocks of this class.
    #[inline]
    pub fn keeps(&self, class: Class) -> bool {
        class.0 <= self.largest.get()
    }

    pub(super) fn set_largest(&self) {
        let holds = self.enabled.get() && MAY_HOLD.load(Ordering::Relaxed);
        self.largest
            .set(if holds { self.class_max.get() } else { 0 });
    }

    /// Whether its thread has enabled it. An enabled cache still holds nothing where the options
    /// forbid caches.
    pub fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    /// Enables or disables the cache, and flushes it.
    pub fn enable(&self, on: bool) {
        self.flush_all();
        self.enabled.set(on);
        self.set_largest();
    }

    /// The size of the largest blocks that it holds when enabled.
    pub fn max_size(&self) -> usize {
        Class(self.class_max.get()).size()
    }

    /// Sets the size of the largest blocks that it holds, rounded up to a size class and capped at
    /// what a cache can hold.
    pub fn set_max_size(&self, size: usize) {
        self.flush_all();
        let size = size.min(crate::class::CACHED_MAX);
        let class = if size == 0 {
            Class::NONE
        } else {
            Class::of(size)
        };
        // A cache keeps all classes up to a number, and tailored classes have the highest slab
        // numbers.
        if class.index() < SLAB_CLASSES {
            tailored::keep_as_they_are();
        }
        self.class_max.set(class.0);
        self.set_largest();
    }

    /// The most blocks of a class that it can hold.
    pub fn blocks_max(&self, class: Class) -> usize {
        if self.keeps(class) {
            self.limited(class, max_blocks(class))
        } else {
            0
        }
    }

    /// Limits the number of blocks of a class, and flushes those it holds.
    #[inline]
    pub fn limit(&self, class: Class, blocks: usize) {
        let _busy = Busy::new(self);
        self.close(class);
        let limit = blocks.min(length::BLOCKS_MAX) as u16 + 1;
        self.limits[class.index()].set(limit);
        self.is_limited.set(true);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn forget_limits(&self) {
        self.limits.iter().for_each(|limit| limit.set(0));
        self.is_limited.set(false);
    }

    /// Returns `blocks`, or the limit that the thread set for the class if that is less.
    #[inline(always)]
    pub(super) fn limited(&self, class: Class, blocks: usize) -> usize {
        // A limit of 0 wraps to more than any number of blocks.
        let limit = self.limits[class.index()].get().wrapping_sub(1);
        blocks.min(limit as usize)
    }
}
