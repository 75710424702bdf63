//! The figures of all sites at a moment, against which a later profile shows what has changed.

use crate::cache::inside;
use crate::prof::samples;
use crate::prof::sites::{self, SiteTotals};
use crate::space::meta;
use core::ptr::NonNull;

/// The figures of the sites, in the order in which they were made.
pub struct Snapshot {
    first: NonNull<SiteTotals>,
    room: usize,
    len: usize,
    resets: u16,
}

impl Snapshot {
    /// Takes a snapshot; `None` when memory is out.
    #[cold]
    #[inline(never)]
    pub fn take() -> Option<Snapshot> {
        let _inside = inside::enter_or_wait();
        // Some more, for those that are made meanwhile.
        let count = sites::table().count();
        let room = count + count / 8 + 64;
        let first = meta::take(room * size_of::<SiteTotals>())?.cast();
        let mut snapshot = Snapshot {
            first,
            room,
            len: 0,
            resets: samples::resets(),
        };
        sites::each(&mut |_, figures| {
            if snapshot.len < snapshot.room {
                // SAFETY: the record has room for this many figures.
                unsafe { snapshot.first.add(snapshot.len).write(*figures) };
                snapshot.len += 1;
            }
        });
        Some(snapshot)
    }

    /// The figures of the site with this number; none for a site that was made later, or if all
    /// were forgotten since.
    pub fn figures(&self, number: usize) -> Option<&SiteTotals> {
        let is_there = number < self.len && self.resets == samples::resets();
        // SAFETY: this many are written.
        is_there.then(|| unsafe { self.first.add(number).as_ref() })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let _inside = inside::enter_or_wait();
        // SAFETY: taken with this size.
        unsafe { meta::give(self.first.cast(), self.room * size_of::<SiteTotals>()) };
    }
}
