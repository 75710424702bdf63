//! The page of statistics that other processes read, word by word.
//!
//! A reader finds a page by the descriptor of its memory ([`MEMORY_NAME`]) or by the root block
//! ([`crate::records`]). [`StatsPage::sequence`] is odd while the figures are written, and has
//! another value afterwards. Everything here is a promise to readers of other builds: a change
//! needs another [`LAYOUT`]. Sections and rows may become longer within a layout, because the
//! figures say where each section lies ([`About`]).
//!
//! The process writes all of it but [`StatsPage::request`], which a reader that may write the
//! memory sets; the process reads it with care.

mod requests;
mod words;

use core::ffi::CStr;
use core::mem::offset_of;

pub use requests::{Request, RequestStatus};
pub use words::{About, Lock, OfArena, OfClass, OfLock, Total, Totals};

/// How a page begins.
pub const MAGIC: u64 = crate::mark(b"MALLSTAT");
/// The version of the layout.
pub const LAYOUT: u32 = 1;

/// The name of the file without a folder that is the memory of a page that is shared, and the least
/// number of its descriptor.
pub const MEMORY_NAME: &CStr = c"mallard-stats";
pub const DESCRIPTOR_MIN: i32 = 100;

/// A page. A process writes atomic words.
#[repr(C, align(64))]
pub struct StatsPage<Word> {
    /// [`MAGIC`], written last.
    pub magic: Word,
    /// [`LAYOUT`], and the bytes of the page in the upper half.
    pub layout: Word,
    pub sequence: Word,
    /// The process whose figures these are; 0 for the one that has the page in its own memory.
    pub pid: Word,
    /// From a reader: a [`Request`], with six bytes that no two requests share.
    pub request: Word,
    /// The last request that was carried out, and its [`RequestStatus`].
    pub done: Word,
    pub answer: Word,
    /// The last request that a thread has taken on.
    pub taken: Word,
    pub figures: [Word; FIGURES],
}

/// Bytes of a word.
pub const WORD_BYTES: usize = size_of::<u64>();

// The page's first words, by number.
pub const WORD_MAGIC: usize = offset_of!(StatsPage<u64>, magic) / WORD_BYTES;
pub const WORD_LAYOUT: usize = offset_of!(StatsPage<u64>, layout) / WORD_BYTES;
pub const WORD_SEQUENCE: usize = offset_of!(StatsPage<u64>, sequence) / WORD_BYTES;
pub const WORD_PID: usize = offset_of!(StatsPage<u64>, pid) / WORD_BYTES;
pub const WORD_REQUEST: usize = offset_of!(StatsPage<u64>, request) / WORD_BYTES;
pub const WORD_DONE: usize = offset_of!(StatsPage<u64>, done) / WORD_BYTES;
pub const WORD_ANSWER: usize = offset_of!(StatsPage<u64>, answer) / WORD_BYTES;
/// The first figure.
pub const FIGURES_AT_WORD: usize = offset_of!(StatsPage<u64>, figures) / WORD_BYTES;

/// The word of a layout, with the bytes of the page.
pub const fn layout_word(bytes: usize) -> u64 {
    (bytes as u64) << 32 | LAYOUT as u64
}

/// A section of the figures: rows of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The first word, counted from the first figure.
    pub first: usize,
    pub rows: usize,
    /// Words of a row.
    pub width: usize,
}

impl Section {
    const fn after(before: Section, rows: usize, width: usize) -> Section {
        Section {
            first: before.first + before.rows * before.width,
            rows,
            width,
        }
    }

    /// The section in a word, as readers find it: 32 bits, 16 and 16.
    pub const fn word(self) -> u64 {
        (self.first as u64) << 32 | (self.rows as u64) << 16 | self.width as u64
    }

    /// The section of such a word, which may be any.
    pub const fn of(word: u64) -> Section {
        Section {
            first: (word >> 32) as usize,
            rows: (word >> 16 & 0xffff) as usize,
            width: (word & 0xffff) as usize,
        }
    }
}

/// When the page is from, and where the sections are: a row for each [`About`].
pub const ABOUT: Section = Section {
    first: 0,
    rows: 8,
    width: 1,
};
/// Figures of the process: a row for each [`Total`], and room for more.
pub const TOTALS: Section = Section::after(ABOUT, 56, 1);
/// A row of [`OfClass`] for each class that caches can hold, and one for larger blocks.
pub const CLASSES: Section = Section::after(TOTALS, 64, 8);
/// A row of [`OfArena`] for each of the first arenas.
pub const ARENAS: Section = Section::after(CLASSES, 64, 8);
/// A row of [`OfLock`] for each kind of [`Lock`].
pub const LOCKS: Section = Section::after(ARENAS, Lock::COUNT, 4);
/// The number of figures.
pub const FIGURES: usize = Section::after(LOCKS, 0, 0).first;

/// The library's version in a word: 32 bits, 16 and 16.
pub const fn version_word([major, minor, patch]: [u32; 3]) -> u64 {
    (major as u64) << 32 | (minor as u64) << 16 | patch as u64
}

/// The version of such a word.
pub const fn version_of(word: u64) -> [u32; 3] {
    [
        (word >> 32) as u32,
        (word >> 16 & 0xffff) as u32,
        (word & 0xffff) as u32,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of another build relies on this; a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_that_of_its_number() {
        assert_eq!(LAYOUT, 1);
        assert_eq!(layout_word(9152), 9152 << 32 | 1);
        let page = [
            WORD_MAGIC,
            WORD_LAYOUT,
            WORD_SEQUENCE,
            WORD_PID,
            WORD_REQUEST,
            WORD_DONE,
            WORD_ANSWER,
            FIGURES_AT_WORD,
        ];
        assert_eq!(page, [0, 1, 2, 3, 4, 5, 6, 8]);
        let sections = [ABOUT, TOTALS, CLASSES, ARENAS, LOCKS].map(|s| (s.first, s.rows, s.width));
        assert_eq!(
            sections,
            [
                (0, 8, 1),
                (8, 56, 1),
                (64, 64, 8),
                (576, 64, 8),
                (1088, 12, 4)
            ]
        );
        assert_eq!(FIGURES, 1136);
        let about = [About::Published, About::Version, About::Locks];
        assert_eq!(about.map(|word| word as usize), [1, 3, 7]);
        let totals = [
            Total::ThreadCached,
            Total::Purged,
            Total::Peak,
            Total::Samples,
            Total::ZeroReallocs,
            Total::SamplesMore,
        ];
        assert_eq!(totals.map(|word| word as usize), [8, 14, 20, 24, 32, 34]);
        assert_eq!([OfClass::Pages as usize, OfClass::Blocks as usize], [4, 7]);
        assert_eq!([OfArena::Pages as usize, OfArena::Muzzy as usize], [4, 7]);
        assert_eq!([Lock::Bins as usize, Lock::Records as usize], [6, 11]);
        assert_eq!([OfLock::Waits as usize, OfLock::Longest as usize], [1, 3]);
    }

    #[test]
    fn sections_and_versions_are_read_as_they_are_written() {
        for section in [ABOUT, TOTALS, CLASSES, ARENAS, LOCKS] {
            assert_eq!(Section::of(section.word()), section);
        }
        assert_eq!(version_word([1, 2, 3]), 1 << 32 | 2 << 16 | 3);
        assert_eq!(version_of(version_word([1, 2, 3])), [1, 2, 3]);
    }
}
