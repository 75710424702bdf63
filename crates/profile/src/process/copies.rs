//! Copies of records that their owner may change at the same time.

use std::thread;
use std::time::Duration;

use mallard_inspect::memory::{Fault, Memory, Piece};

/// A record whose owner counts its changes in a word of 32 bits, which is odd during a change.
#[derive(Debug, Clone, Copy)]
pub struct Versioned {
    pub at: u64,
    /// Where in the record the word lies.
    pub version_at: u64,
    pub bytes: usize,
}

/// Copies of some records, and how many of them may be of two moments.
#[derive(Debug, Default)]
pub struct Copies {
    pub records: Vec<Vec<u8>>,
    pub torn: usize,
}

/// Attempts at a record that changes all the time.
const ATTEMPTS_MAX: u32 = 8;
/// Attempts at a record whose owner is in the middle of a change and makes no progress: on a busy
/// machine it may have lost its CPU there. They take about a second.
const STALLED_ATTEMPTS_MAX: u32 = 85;
/// The pause before the second attempt. Each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_micros(12_800);
/// Records that are copied between two looks at their versions.
const BATCH_RECORDS: usize = 256;

/// Copies records as they were at one moment each. A record that changes at each attempt, or whose
/// owner stopped in the middle of a change, is copied as it is, and counted.
///
/// # Errors
/// A record cannot be read.
pub fn stable(memory: &dyn Memory, records: &[Versioned]) -> Result<Copies, Fault> {
    let mut copies = Copies {
        records: vec![Vec::new(); records.len()],
        torn: 0,
    };
    let mut pending: Vec<usize> = (0..records.len()).collect();
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=STALLED_ATTEMPTS_MAX {
        let mut changed = Vec::new();
        let mut is_one_stalled = false;
        for part in pending.chunks(BATCH_RECORDS) {
            let before = versions(memory, records, part)?;
            for &i in part {
                copies.records[i].resize(records[i].bytes, 0);
            }
            copy(memory, records, part, &mut copies.records)?;
            let after = versions(memory, records, part)?;
            for ((&i, before), after) in part.iter().zip(before).zip(after) {
                if before != after || before % 2 == 1 {
                    changed.push(i);
                    is_one_stalled |= before == after;
                }
            }
        }
        pending = changed;
        let is_over = attempt >= ATTEMPTS_MAX && !is_one_stalled;
        if pending.is_empty() || is_over || !memory.is_running() {
            break;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    copies.torn = pending.len();
    Ok(copies)
}

fn versions(memory: &dyn Memory, records: &[Versioned], part: &[usize]) -> Result<Vec<u32>, Fault> {
    let mut words = vec![[0; 4]; part.len()];
    let mut pieces: Vec<Piece<'_>> = part
        .iter()
        .zip(&mut words)
        .map(|(&i, into)| Piece {
            at: records[i].at.wrapping_add(records[i].version_at),
            into,
        })
        .collect();
    memory.read(&mut pieces)?;
    Ok(words.into_iter().map(u32::from_le_bytes).collect())
}

fn copy(
    memory: &dyn Memory,
    records: &[Versioned],
    part: &[usize],
    copied: &mut [Vec<u8>],
) -> Result<(), Fault> {
    // The places in `part` ascend.
    let mut wanted = part.iter().peekable();
    let mut pieces: Vec<Piece<'_>> = copied
        .iter_mut()
        .enumerate()
        .filter(|(i, _)| wanted.next_if(|&&next| next == *i).is_some())
        .map(|(i, copied)| Piece {
            at: records[i].at,
            into: copied,
        })
        .collect();
    memory.read(&mut pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mallard_inspect::memory::Fields;
    use std::cell::Cell;

    /// A record of a version and a number that is twice the version. Its writer has a version for
    /// each read, by the read's number from 1.
    struct Busy {
        reads: Cell<u32>,
        version: fn(u32) -> u32,
    }

    impl Memory for Busy {
        fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
            self.reads.set(self.reads.get() + 1);
            let version = (self.version)(self.reads.get());
            let record = [version.to_le_bytes(), (2 * version).to_le_bytes()].concat();
            for piece in pieces {
                let at = piece.at as usize;
                piece
                    .into
                    .copy_from_slice(&record[at..at + piece.into.len()]);
            }
            Ok(())
        }

        fn most_bytes(&self) -> u64 {
            8
        }

        fn is_running(&self) -> bool {
            true
        }

        fn page_bytes(&self) -> u64 {
            4096
        }
    }

    fn copied(version: fn(u32) -> u32) -> Copies {
        let memory = Busy {
            reads: Cell::new(0),
            version,
        };
        let record = Versioned {
            at: 0,
            version_at: 0,
            bytes: 8,
        };
        stable(&memory, &[record]).unwrap()
    }

    #[test]
    fn a_record_is_copied_again_until_nobody_writes_meanwhile() {
        let copies = copied(|read| read.min(10));
        let record = Fields(&copies.records[0]);
        assert_eq!((record.u32(0), record.u32(4), copies.torn), (10, 20, 0));
    }

    #[test]
    fn a_record_that_never_stands_still_is_counted() {
        assert_eq!(copied(|read| read).torn, 1);
        // Its owner stopped in the middle.
        assert_eq!(copied(|_| 7).torn, 1);
    }

    #[test]
    fn an_owner_that_goes_on_late_is_waited_for() {
        // Three reads are an attempt.
        let copies = copied(|read| if read < 3 * ATTEMPTS_MAX + 10 { 7 } else { 8 });
        let record = Fields(&copies.records[0]);
        assert_eq!((record.u32(0), record.u32(4), copies.torn), (8, 16, 0));
    }
}
