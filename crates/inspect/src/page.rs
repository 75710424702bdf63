//! The words of a page of statistics, which [`mallard_formats::page`] describes. The end-to-end
//! tests read real pages.

use mallard_formats::page::{About, FIGURES_AT_WORD, Section, WORD_BYTES, WORD_LAYOUT};

/// The most bytes of a page that are read.
pub const BYTES_MAX: usize = 256 * 1024;

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
    pub fn about(&self, which: About) -> u64 {
        self.figure(which as usize)
    }

    /// Where a section lies, by the figure that says so.
    pub fn section(&self, which: About) -> Section {
        Section::of(self.about(which))
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
        words.0[FIGURES_AT_WORD + About::Totals as usize] = u64::MAX;
        let section = words.section(About::Totals);
        assert_eq!(section.rows, 0xffff);
        assert_eq!(words.cell(section, 0xfffe, 0xfffe), 0);
        assert_eq!(words.cell(Section::of(8 << 32 | 56 << 16 | 1), 56, 0), 0);
        assert_eq!(Words::new(&[1; 7]).get(0), 0);
    }
}
