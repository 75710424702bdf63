//! The layout of a page of statistics. The allocator's `upkeep::export::page` promises it. Both
//! files have a test that checks it, and the end-to-end tests read real pages.

/// `MALLSTAT`, as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MALLSTAT");
/// The layout that this crate reads.
pub const LAYOUT: u32 = 1;

/// The page's first words, by number.
pub const WORD_MAGIC: usize = 0;
pub const WORD_LAYOUT: usize = 1;
pub const WORD_SEQUENCE: usize = 2;
pub const WORD_PID: usize = 3;
pub const WORD_REQUEST: usize = 4;
pub const WORD_DONE: usize = 5;
pub const WORD_ANSWER: usize = 6;
/// The first figure.
pub const FIGURES_AT_WORD: usize = 8;
/// The most bytes of a page that are read.
pub const BYTES_MAX: usize = 256 * 1024;
/// Bytes of a word.
pub const WORD_BYTES: usize = 8;

/// Figures about the page, counted from the first.
pub const FIGURE_BEGAN: usize = 0;
pub const FIGURE_PUBLISHED: usize = 1;
pub const FIGURE_COUNT: usize = 2;
pub const FIGURE_VERSION: usize = 3;
pub const FIGURE_TOTALS: usize = 4;
pub const FIGURE_CLASSES: usize = 5;
pub const FIGURE_ARENAS: usize = 6;
pub const FIGURE_LOCKS: usize = 7;

/// A section: rows of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    pub first: usize,
    pub rows: usize,
    pub width: usize,
}

impl Section {
    pub fn of(word: u64) -> Section {
        Section {
            first: (word >> 32) as usize,
            rows: (word >> 16 & 0xffff) as usize,
            width: (word & 0xffff) as usize,
        }
    }
}

/// The words of a page, none of which is trusted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Words(pub Vec<u64>);

impl Words {
    pub fn new(bytes: &[u8]) -> Words {
        let words = bytes.chunks_exact(WORD_BYTES);
        Words(
            words
                .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                .collect(),
        )
    }

    /// A word; 0 beyond the end.
    pub fn get(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }

    pub fn layout(&self) -> u32 {
        self.get(WORD_LAYOUT) as u32
    }

    /// The bytes of the page, as it says.
    pub fn bytes(&self) -> usize {
        (self.get(WORD_LAYOUT) >> 32) as usize
    }

    fn figure(&self, at: usize) -> u64 {
        self.get(FIGURES_AT_WORD.saturating_add(at))
    }

    /// A figure about the page.
    pub fn about(&self, which: usize) -> u64 {
        self.figure(which)
    }

    pub fn section(&self, which: usize) -> Section {
        Section::of(self.figure(which))
    }

    /// A word of a row; 0 if the section has no such.
    pub fn cell(&self, section: Section, row: usize, word: usize) -> u64 {
        if row >= section.rows || word >= section.width {
            return 0;
        }
        self.figure(section.first + row * section.width + word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_a_page_are_zero_whatever_it_says() {
        let mut words = Words(vec![0; FIGURES_AT_WORD + 8]);
        words.0[FIGURES_AT_WORD + FIGURE_TOTALS] = u64::MAX;
        let section = words.section(FIGURE_TOTALS);
        assert_eq!(section.rows, 0xffff);
        assert_eq!(words.cell(section, 0xfffe, 0xfffe), 0);
        assert_eq!(words.cell(Section::of(8 << 32 | 56 << 16 | 1), 56, 0), 0);
        assert_eq!(Words::new(&[1; 7]).get(0), 0);
    }
}
