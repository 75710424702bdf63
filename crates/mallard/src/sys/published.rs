//! A reference that is set once and then read without a lock.
//!
//! What it leads to is complete when it is set, and lives for ever: a reader that finds it sees all
//! of it. An [`Extent`] says how far a row of such references, or of other things, is set.

use super::atomic::{AtomicPtr, AtomicUsize, Ordering, const_unless_loom};
use core::ptr;

/// A reference, or none yet.
#[repr(transparent)]
pub struct Published<T: Sync + 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Published<T> {
    const_unless_loom! {
        pub fn none() -> Self {
            Published(AtomicPtr::new(ptr::null_mut()))
        }
    }

    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or what `set` or `set_first` stored: a reference that lives for ever.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the reference. Setters exclude each other.
    #[inline]
    pub fn set(&self, value: &'static T) {
        self.0
            .store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }

    /// Sets the reference unless another thread did that first; returns the one that is set.
    #[inline]
    pub fn set_first(&self, value: &'static T) -> &'static T {
        let (none, value) = (ptr::null_mut(), ptr::from_ref(value).cast_mut());
        let set = (self.0).compare_exchange(none, value, Ordering::AcqRel, Ordering::Acquire);
        let there = match set {
            Ok(_) => value,
            Err(other) => other,
        };
        // SAFETY: not null, and as in `get`.
        unsafe { &*there }
    }
}

/// A reference that its owner changes now and then, to something that lives for ever. Other threads
/// may read it: what it leads to was complete before it was set.
#[repr(transparent)]
pub struct Current<T: Sync + 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Current<T> {
    pub fn new(value: &'static T) -> Self {
        Current(AtomicPtr::new(ptr::from_ref(value).cast_mut()))
    }

    /// For the owner.
    #[inline(always)]
    pub fn get(&self) -> &'static T {
        // SAFETY: it always holds a reference that lives for ever.
        unsafe { &*self.0.load(Ordering::Relaxed) }
    }

    /// For other threads.
    pub fn seen(&self) -> &'static T {
        // SAFETY: as in `get`.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// For the owner.
    #[inline(always)]
    pub fn set(&self, value: &'static T) {
        self.0
            .store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }

    /// For the owner: sets the reference and returns the one before.
    #[inline(always)]
    pub fn replace(&self, value: &'static T) -> &'static T {
        let before = self.get();
        self.set(value);
        before
    }
}

/// How many things of a row are complete, from the first. It only grows.
#[repr(transparent)]
pub struct Extent(AtomicUsize);

impl Extent {
    const_unless_loom! {
        pub fn none() -> Self {
            Extent(AtomicUsize::new(0))
        }
    }

    /// All below this number are complete.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// The same, for a thread that excludes those which change it, or needs only the number.
    #[inline]
    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Says that all below this number are complete. Callers exclude each other.
    #[inline]
    pub fn set(&self, end: usize) {
        self.0.store(end, Ordering::Release);
    }
}
