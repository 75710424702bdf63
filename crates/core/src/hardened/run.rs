//! The record of a hardened large block, in the last bytes of its pages: its size, and a word as
//! that of a small one. The first bytes behind the program's hold the same pattern as slack.

use super::word::{Damage, Family, Keys, SLACK, WORD, Word, WordPlace};

/// Bytes of the record.
const RECORD: usize = 2 * WORD;

/// The bytes of a large block for a request of `size` bytes, or more than any can have.
pub const fn bytes_for(size: usize) -> usize {
    size.saturating_add(RECORD + SLACK)
}

/// A large block's memory.
#[derive(Clone, Copy)]
pub struct RunPlace {
    pub at: usize,
    pub bytes: usize,
}

impl RunPlace {
    /// The record as a place of its own, whose only byte strings are the size and the word: the
    /// word has no slack, and its check covers where it lies.
    fn record(self) -> WordPlace {
        WordPlace {
            at: self.at + self.bytes - RECORD,
            bytes: RECORD,
        }
    }

    /// The place of the slack behind `size` bytes: a word's slack is before it.
    fn tail(self, size: usize) -> WordPlace {
        WordPlace {
            at: self.at,
            bytes: size + SLACK + WORD,
        }
    }

    /// Writes the record of a block of `size` bytes.
    ///
    /// # Safety
    /// The caller owns the memory, which has room for the record.
    pub unsafe fn enter(self, size: usize, family: Family, site: u16, keys: &Keys) {
        // SAFETY: the caller's promise.
        unsafe {
            self.tail(size).fill(SLACK, keys);
            self.record().enter(size as u64, family, site, keys);
        }
    }

    /// The size and the word of the block, if its record and what lies behind it are as they were.
    ///
    /// # Safety
    /// A block in use begins there, and has a record.
    pub unsafe fn look(self, keys: &Keys) -> Result<(usize, Word), Damage> {
        // SAFETY: the caller's promise; sizes beyond the memory are not looked up.
        unsafe {
            let (size, word) = self.record().entered(keys);
            let size = size as usize;
            let Some(word) = word.filter(|_| bytes_for(size) <= self.bytes) else {
                return Err(Damage::Word(self.bytes - RECORD));
            };
            match self.tail(size).changed(SLACK, keys) {
                Some(at) => Err(Damage::Over(at, word)),
                None => Ok((size, word)),
            }
        }
    }
}
