//! Fills blocks with patterns that reveal a lost or foreign byte.
//!
//! Each filling has a number of its own, and a byte depends on that and its offset, so a
//! neighbour's bytes or older ones at the same place do not pass for it. In a long block only some
//! bytes of every page are written, and its last ones.

/// Up to this length every byte is written.
const WHOLE: usize = 16 * 1024;
const PAGE: usize = 4096;
/// Bytes written at the start of each page of a long block, and at its end.
const SOME: usize = 8;

fn byte(id: u64, offset: usize) -> u8 {
    let mixed = (id ^ (offset as u64).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ offset as u8
}

/// The offsets that are written in a block of `len` bytes.
fn offsets(len: usize) -> impl Iterator<Item = usize> {
    let whole = len.min(WHOLE);
    let pages = (whole..len)
        .step_by(PAGE)
        .flat_map(move |page| page..(page + SOME).min(len));
    let tail = len.saturating_sub(SOME).max(whole)..len;
    (0..whole).chain(pages).chain(tail)
}

/// Fills `len` bytes.
///
/// # Safety
/// The caller may write these bytes.
pub unsafe fn fill(p: *mut u8, len: usize, id: u64) {
    for offset in offsets(len) {
        // SAFETY: below `len`.
        unsafe { p.add(offset).write(byte(id, offset)) };
    }
}

/// Asserts that the first `kept` bytes of a filling of `len` bytes are intact.
///
/// # Safety
/// `kept` bytes may be read.
pub unsafe fn assert_kept(p: *const u8, len: usize, kept: usize, id: u64) {
    for offset in offsets(len).filter(|&offset| offset < kept) {
        // SAFETY: below `kept`.
        let found = unsafe { p.add(offset).read() };
        assert_eq!(
            found,
            byte(id, offset),
            "byte {offset} of {len} at {p:p} was lost"
        );
    }
}

/// Asserts that every byte of a range is `value`.
///
/// # Safety
/// The range may be read.
pub unsafe fn assert_all(p: *const u8, from: usize, to: usize, value: u8, what: &str) {
    if from >= to {
        return;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(p.add(from), to - from) };
    let word = u64::from_ne_bytes([value; 8]);
    // SAFETY: any bytes are a valid u64.
    let (head, words, tail) = unsafe { bytes.align_to::<u64>() };
    let same =
        words.iter().all(|&w| w == word) && [head, tail].into_iter().flatten().all(|&b| b == value);
    if !same {
        let at = from + bytes.iter().position(|&b| b != value).unwrap_or(0);
        panic!("{what}: byte {at} at {p:p} is not {value:#04x} ({from} to {to} should be)");
    }
}

#[test]
fn a_filling_is_recognised_and_every_damage_that_counts_is_seen() {
    for len in [1, 8, 100, WHOLE, WHOLE + 1, 3 * WHOLE + 17] {
        let mut block = vec![0u8; len];
        // SAFETY: the vector's own bytes.
        unsafe {
            fill(block.as_mut_ptr(), len, 7);
            assert_kept(block.as_ptr(), len, len, 7);
        }
        for at in [0, len / 2 / PAGE * PAGE, len - 1] {
            let mut damaged = block.clone();
            damaged[at] ^= 0x10;
            // SAFETY: the vector's own bytes.
            let seen =
                std::panic::catch_unwind(|| unsafe { assert_kept(damaged.as_ptr(), len, len, 7) });
            assert!(seen.is_err(), "damage at {at} of {len} went unseen");
        }
    }
}
