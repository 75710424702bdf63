//! A copy of the samples in use, for profiles that tell them one by one.

use super::{Sample, count, each_of};
use crate::class::SLAB_CLASSES;
use crate::prof::gap::Weight;
use crate::prof::sites::Site;
use crate::prof::sort::by_key;
use crate::space::meta;
use core::ptr::NonNull;

/// Equal samples of one site.
#[derive(Clone, Copy)]
pub struct Row {
    pub site: &'static Site,
    pub weight: Weight,
    pub usable: usize,
    pub requested: usize,
    pub thread: u32,
    pub arena: u16,
    pub count: u32,
}

/// A copy of all samples, in metadata memory.
pub struct Rows {
    first: NonNull<Row>,
    room: usize,
    len: usize,
}

/// The most samples that are copied: with more, a profile would be long and its making slow.
const ROWS_MAX: usize = 200_000;

/// Copies all samples that were taken after this number of resets, those of one class at a time.
/// `None` if there are too many, or memory is out.
pub fn rows(resets: u16) -> Option<Rows> {
    // Some more, for those that come meanwhile.
    let room = count() + count() / 8 + 64;
    if room > ROWS_MAX {
        return None;
    }
    let first = meta::take(room * size_of::<Row>())?.cast();
    let mut rows = Rows {
        first,
        room,
        len: 0,
    };
    for part in 0..=SLAB_CLASSES + 1 {
        each_of(part, &mut |_, sample| {
            if sample.resets == resets {
                rows.push(sample);
            }
        });
    }
    Some(rows)
}

impl Rows {
    fn push(&mut self, sample: &Sample) {
        let row = Row {
            site: sample.site,
            weight: sample.weight,
            usable: sample.usable,
            requested: sample.requested,
            thread: sample.thread,
            arena: sample.arena,
            count: 1,
        };
        if let Some(last) = self.len.checked_sub(1) {
            // SAFETY: so many rows are written.
            let last = unsafe { self.first.add(last).as_mut() };
            let is_same = core::ptr::eq(last.site, row.site)
                && (last.weight, last.usable, last.requested)
                    == (row.weight, row.usable, row.requested)
                && (last.thread, last.arena) == (row.thread, row.arena);
            if is_same {
                last.count += 1;
                return;
            }
        }
        if self.len < self.room {
            // SAFETY: the record has room for so many rows.
            unsafe { self.first.add(self.len).write(row) };
            self.len += 1;
        }
    }

    pub fn get(&self) -> &[Row] {
        // SAFETY: so many rows are written.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    fn get_mut(&mut self) -> &mut [Row] {
        // SAFETY: as above, and nothing else uses them.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }

    pub fn sort_by_thread(&mut self) {
        by_key(self.get_mut(), |row| (row.thread as usize, 0));
    }

    /// By site, and for each site by thread.
    pub fn sort_by_site(&mut self) {
        by_key(self.get_mut(), |row| {
            let site = core::ptr::from_ref(row.site).addr();
            (site, row.thread as usize)
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.get().iter()
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.first.cast(), self.room * size_of::<Row>()) };
    }
}
