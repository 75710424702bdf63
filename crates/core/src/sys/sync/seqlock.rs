//! A sequence number beside words that one thread writes and others, in other processes too, read
//! as a whole.
//!
//! The number is odd while the words are being written. A reader takes it, then the words, then the
//! number again: if it was even and is the same, the words are of one moment. Readers write
//! nothing, so they never delay the writer. All words are atomics. Writers exclude each other by
//! other means. After Boehm, *Can Seqlocks Get Along With Programming Language Memory Models?*
//! (2012).

use crate::sys::atomic::{AtomicU64, Ordering, fence};

/// Stores `words` in `to`, of which a reader sees all or nothing.
pub fn write<'w>(sequence: &AtomicU64, to: impl IntoIterator<Item = &'w AtomicU64>, words: &[u64]) {
    // Odd even if an earlier writer never ended: a fork may have left its other threads behind.
    let odd = sequence.load(Ordering::Relaxed) | 1;
    sequence.store(odd, Ordering::Relaxed);
    // A reader that finds one of the words also finds the odd number.
    fence(Ordering::Release);
    for (to, &word) in to.into_iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
    sequence.store(odd.wrapping_add(1), Ordering::Release);
}

/// Reads words into `into`; returns whether they are of one moment. This is what a reader in
/// another process has to do.
#[cfg(test)]
pub fn read<'w>(
    sequence: &AtomicU64,
    from: impl IntoIterator<Item = &'w AtomicU64>,
    into: &mut [u64],
) -> bool {
    let before = sequence.load(Ordering::Acquire);
    for (into, from) in into.iter_mut().zip(from) {
        *into = from.load(Ordering::Relaxed);
    }
    // A reader that has found a later word finds a later number.
    fence(Ordering::Acquire);
    before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn a_page_read_a_million_times_beside_its_writer_is_never_torn() {
        const WORDS: usize = 64;
        const READS: u64 = 1_000_000;
        let words = [const { AtomicU64::new(0) }; WORDS];
        let (sequence, over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1.. {
                    write(&sequence, &words, &[n; WORDS]);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    // Leaves readers room on a machine with one CPU.
                    if n % 64 == 0 {
                        thread::yield_now();
                    }
                }
            });
            let (mut whole, mut copy) = (0, [0; WORDS]);
            while whole < READS {
                if read(&sequence, &words, &mut copy) {
                    whole += 1;
                    assert_eq!(copy, [copy[0]; WORDS], "torn");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_write_that_never_ended_hides_the_words_until_the_next_one() {
        let (sequence, words) = (AtomicU64::new(7), [AtomicU64::new(3)]);
        let mut copy = [0];
        assert!(!read(&sequence, &words, &mut copy));
        write(&sequence, &words, &[4]);
        assert!(read(&sequence, &words, &mut copy));
        assert_eq!((copy, sequence.load(Ordering::Relaxed)), ([4], 8));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn a_reader_sees_all_of_a_write_or_knows_that_it_did_not() {
        loom::model(|| {
            let page = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let shared = page.clone();
            let reader = thread::spawn(move || {
                let mut copy = [0; 2];
                if read(&shared.0, &shared.1, &mut copy) {
                    assert_eq!(copy[0], copy[1]);
                }
            });
            write(&page.0, &page.1, &[1, 1]);
            write(&page.0, &page.1, &[2, 2]);
            reader.join().unwrap();
            let mut copy = [0; 2];
            assert!(read(&page.0, &page.1, &mut copy));
            assert_eq!(copy, [2, 2]);
        });
    }
}
