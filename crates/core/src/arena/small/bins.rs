//! The bins of an arena, each made when its class is first used there.
//!
//! Most programs use a dozen of the sixty classes. A bin is a record of its own, so that the few
//! bins lie together with other data their threads touch, instead of spread over a table of four
//! pages. A bin is never freed. It is made under the lock of the arenas (`making`), which a fork
//! holds, so that the child knows all bins with locks.

use crate::arena::making::making;
use crate::arena::small::bin::Bin;
use crate::class::{CACHED_CLASSES, Class};
use crate::space::meta;
use crate::sys::published::Published;

pub struct Bins([Published<Bin>; CACHED_CLASSES + 1]);

impl Bins {
    pub const fn new() -> Bins {
        Bins([const { Published::none() }; CACHED_CLASSES + 1])
    }

    /// The bin of a class; `None` if no block of the class was ever taken or returned here.
    #[inline]
    pub fn get(&self, class: Class) -> Option<&'static Bin> {
        self.0[class.index()].get()
    }

    /// Like [`Bins::get`], but makes the bin if needed; `None` when memory is out.
    #[inline]
    pub fn get_or_make(&self, class: Class) -> Option<&'static Bin> {
        self.get(class).or_else(|| self.make(class))
    }

    #[cold]
    #[inline(never)]
    fn make(&self, class: Class) -> Option<&'static Bin> {
        let _making = making();
        if let Some(bin) = self.get(class) {
            return Some(bin);
        }
        let bin: *mut Bin = meta::take(size_of::<Bin>())?.as_ptr().cast();
        // SAFETY: a record as long as a bin, aligned to a cache line as a bin is, and used by
        // nothing else.
        let bin: &'static Bin = unsafe {
            bin.write(Bin::new());
            &*bin
        };
        self.0[class.index()].set(bin);
        Some(bin)
    }

    /// All bins that were made.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'static Bin> {
        self.0.iter().filter_map(Published::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;
    use std::thread;
    use std::time::Duration;
    use std::vec::Vec;

    #[test]
    fn a_bin_is_made_once_whoever_asks_first() {
        crate::testing::own_process!();
        let _alone = alone();
        let bins = Bins::new();
        let classes = [Class(1), Class(9), Class(CACHED_CLASSES as u8)];
        assert!(classes.iter().all(|&class| bins.get(class).is_none()));
        assert_eq!(bins.iter().count(), 0);
        let made =
            || classes.map(|class| core::ptr::from_ref(bins.get_or_make(class).unwrap()).addr());
        let all: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(made)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.iter().all(|bins| *bins == all[0]), "{all:x?}");
        assert!(all[0][0] != all[0][1] && all[0][1] != all[0][2]);
        assert_eq!(bins.iter().count(), classes.len());
        assert_eq!(
            bins.get(Class(9)).map(|b| core::ptr::from_ref(b).addr()),
            Some(all[0][1])
        );
    }

    #[test]
    fn none_is_made_while_a_fork_holds_the_lock_of_the_arenas() {
        crate::testing::own_process!();
        let _alone = alone();
        let (bins, class) = (Bins::new(), Class(9));
        thread::scope(|scope| {
            let fork = making();
            scope.spawn(|| bins.get_or_make(class));
            // Long enough for a thread that does not wait to make one.
            thread::sleep(Duration::from_millis(50));
            assert!(bins.get(class).is_none());
            drop(fork);
        });
        assert!(bins.get(class).is_some());
    }
}
