//! A reference that is set once and then read without a lock.
//!
//! What it leads to is complete when it is set, and lives for ever: a reader that finds it sees all
//! of it. A [`Count`] says how many entries of an array of such references, or of other things, are
//! set.

use crate::sys::atomic::{AtomicPtr, AtomicUsize, Ordering, const_unless_loom};
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

    /// The reference, which is set.
    ///
    /// # Safety
    /// It is: the caller has read so from a [`Count`], for example.
    #[inline]
    pub unsafe fn get_set(&self) -> &'static T {
        // SAFETY: the caller's promise, and as in `get`.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Sets the reference unless another thread did that first; then returns the other one.
    #[inline]
    pub fn set_first(&self, value: &'static T) -> Result<(), &'static T> {
        let (none, value) = (ptr::null_mut(), ptr::from_ref(value).cast_mut());
        let set = (self.0).compare_exchange(none, value, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: not null, and as in `get`.
        set.map(drop).map_err(|other| unsafe { &*other })
    }

    /// Forgets the reference, after which what it leads to may end. The calling thread is the only
    /// one that uses either: in the child of a fork, or in a test that begins anew.
    pub fn forget(&self) {
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
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

/// How many entries of an array are complete, from the first. It only grows.
#[repr(transparent)]
pub struct Count(AtomicUsize);

impl Count {
    const_unless_loom! {
        pub fn none() -> Self {
            Count(AtomicUsize::new(0))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_set_it_wins() {
        static PLACE: Published<u32> = Published::none();
        assert_eq!(PLACE.get(), None);
        assert_eq!(
            (PLACE.set_first(&1), PLACE.set_first(&2)),
            (Ok(()), Err(&1))
        );
        assert_eq!(PLACE.get(), Some(&1));
    }

    #[test]
    fn the_owner_gets_what_it_replaces() {
        let current = Current::new(&1);
        assert_eq!(
            (current.replace(&2), current.get(), current.seen()),
            (&1, &2, &2)
        );
    }
}

/// Checks every interleaving with the model checker (see `lock`).
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sys::atomic::UnsafeCell;
    use crate::sys::lock::Mutex;
    use loom::sync::Arc;
    use loom::thread;

    /// An arena or a page heap: written once, before it is published.
    struct Made(UnsafeCell<usize>);

    // SAFETY: only read once it is published, which is what is tested.
    unsafe impl Sync for Made {}

    impl Made {
        fn new(number: usize) -> &'static Made {
            let made: &Made = Box::leak(Box::new(Made(UnsafeCell::new(usize::MAX))));
            // SAFETY: nothing else refers to it yet.
            made.0.with_mut(|n| unsafe { *n = number });
            made
        }

        fn number(&self) -> usize {
            // SAFETY: as above.
            self.0.with(|n| unsafe { *n })
        }
    }

    /// A table like those of page heaps and arenas.
    struct Table {
        slots: [Published<Made>; 2],
        end: Count,
        making: Mutex<()>,
    }

    impl Table {
        fn new() -> Arc<Self> {
            Arc::new(Table {
                slots: [Published::none(), Published::none()],
                end: Count::none(),
                making: Mutex::new(()),
            })
        }

        /// As page heaps are made: the next number.
        fn make(&self) {
            let _making = self.making.lock();
            let number = self.end.now();
            self.slots[number].set(Made::new(number));
            self.end.set(number + 1);
        }

        /// As arenas are made: a number of the caller's choice, unless it exists.
        fn make_numbered(&self, number: usize) {
            if self.slots[number].get().is_some() {
                return;
            }
            let _making = self.making.lock();
            if self.slots[number].get().is_none() {
                self.slots[number].set(Made::new(number));
                self.end.set(self.end.now().max(number + 1));
            }
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn all_page_heaps_up_to_the_number_are_there_and_complete() {
        check(|| {
            let table = Table::new();
            let (maker, reader) = (table.clone(), table.clone());
            let maker = thread::spawn(move || maker.make());
            let reader = thread::spawn(move || {
                for i in 0..reader.end.get() {
                    let made = reader.slots[i].get().expect("the number covers it");
                    assert_eq!(made.number(), i);
                }
            });
            table.make();
            maker.join().unwrap();
            reader.join().unwrap();
            assert_eq!(table.end.get(), 2);
        });
    }

    #[test]
    fn an_arena_is_made_once_and_seen_whole() {
        check(|| {
            let table = Table::new();
            let (maker, reader) = (table.clone(), table.clone());
            let maker = thread::spawn(move || maker.make_numbered(1));
            let reader = thread::spawn(move || {
                let seen = reader.slots[1].get();
                assert!(seen.is_none_or(|made| made.number() == 1));
                seen
            });
            table.make_numbered(1);
            maker.join().unwrap();
            let seen = reader.join().unwrap();
            assert_eq!(table.end.get(), 2);
            let after = table.slots[1].get().unwrap();
            assert!(seen.is_none_or(|made| ptr::eq(made, after)));
        });
    }

    #[test]
    fn of_two_that_are_set_first_one_wins_and_both_threads_see_it_whole() {
        check(|| {
            let place = Arc::new(Published::none());
            let other = place.clone();
            let set = |place: &Published<Made>, mine| match place.set_first(Made::new(mine)) {
                Ok(()) => mine,
                Err(theirs) => theirs.number(),
            };
            let thread = thread::spawn(move || set(&other, 1));
            let mine = set(&place, 2);
            let theirs = thread.join().unwrap();
            assert_eq!((mine, place.get().unwrap().number()), (theirs, theirs));
        });
    }

    #[test]
    fn what_the_owner_changes_to_is_seen_whole() {
        check(|| {
            let current = Arc::new(Current::new(Made::new(1)));
            let other = current.clone();
            let thread = thread::spawn(move || other.set(Made::new(2)));
            assert!(matches!(current.seen().number(), 1 | 2));
            thread.join().unwrap();
        });
    }
}
