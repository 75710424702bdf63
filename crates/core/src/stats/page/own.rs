//! The figures of a page for readers in the process, without a page.

use super::gather_now;
use crate::cache::inside;
use crate::space::meta;
use crate::stats::metrics::{MetricSource, Section};
use crate::upkeep::export::page::{ABOUT, CLASSES, FIGURES, LOCKS, TOTALS};
use core::ops::Deref;
use core::ptr::NonNull;

/// The figures of one moment.
#[derive(Clone)]
pub struct Words([u64; FIGURES]);

impl Words {
    /// Gathers the figures where the caller wants them: they are 9 KiB.
    pub fn now() -> Words {
        let mut words = Words([0; FIGURES]);
        let _inside = inside::enter_or_wait();
        gather_now(&mut words.0);
        words
    }

    /// The same in a record of the allocator's: nothing is allocated, and little of the stack is
    /// used. `None` when memory is out.
    pub fn take() -> Option<Record> {
        let _inside = inside::enter_or_wait();
        let mut record = Record(meta::take(size_of::<Words>())?.cast());
        // SAFETY: the record is this long and aligned, and nothing else uses it. It holds numbers,
        // for which all bit patterns are valid, and all of them are written.
        gather_now(unsafe { &mut record.0.as_mut().0 });
        Some(record)
    }
}

impl MetricSource for Words {
    fn rows(&self, section: Section) -> usize {
        place(section).rows
    }

    fn word(&self, section: Section, row: usize, word: usize) -> u64 {
        let section = place(section);
        let word = section.first + row * section.width + word;
        self.0.get(word).copied().unwrap_or(0)
    }
}

fn place(section: Section) -> crate::upkeep::export::page::Section {
    match section {
        Section::About => ABOUT,
        Section::Totals => TOTALS,
        Section::Classes => CLASSES,
        Section::Locks => LOCKS,
    }
}

/// Figures in memory of the allocator's own.
pub struct Record(NonNull<Words>);

impl Deref for Record {
    type Target = Words;

    fn deref(&self) -> &Words {
        // SAFETY: `take` filled in the record, which is not written again.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let _inside = inside::enter_or_wait();
        // SAFETY: taken with this size, and no longer used.
        unsafe { meta::give(self.0.cast(), size_of::<Words>()) };
    }
}
