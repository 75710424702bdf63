//! The option whose name is nearest to a mistyped one.
//!
//! Edit distance with neighbouring letters swapped counted as one mistake (optimal string
//! alignment), in three rows of fixed length.

use super::options::TABLE;

/// No option's name is longer (a test holds it), and no mistyped one longer than this is compared.
pub(super) const LONGEST: usize = 40;

/// The option that `key` was probably meant to be.
pub(super) fn nearest(key: &[u8]) -> Option<&'static str> {
    // A third of the letters wrong is no slip of the finger any more.
    let tolerance = (key.len() / 3).max(1);
    let by_distance = TABLE
        .iter()
        .filter_map(|option| Some((distance(key, option.name.as_bytes())?, option.name)))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name);
    by_distance.or_else(|| containing(key))
}

/// The shortest option that has `key` as a part of its name (`decay` finds `dirty_decay_ms`).
fn containing(key: &[u8]) -> Option<&'static str> {
    if key.len() < 3 {
        return None;
    }
    TABLE
        .iter()
        .map(|option| option.name)
        .filter(|name| name.as_bytes().windows(key.len()).any(|part| part == key))
        .min_by_key(|name| name.len())
}

/// How many letters must be changed, added, left out or swapped with their neighbour to turn one
/// word into the other; letter case is not counted. Nothing where a word is longer than `LONGEST`.
pub(super) fn distance(a: &[u8], b: &[u8]) -> Option<usize> {
    if a.len() > LONGEST || b.len() > LONGEST {
        return None;
    }
    // Rows of the usual table: `previous[j]` is the distance from the letters of `a` read before
    // this one to the first `j` of `b`, `before` the row above that one.
    let mut before = [0u8; LONGEST + 1];
    let mut previous = [0u8; LONGEST + 1];
    for (j, cell) in previous.iter_mut().enumerate() {
        *cell = j as u8;
    }
    for i in 1..=a.len() {
        let mut current = [0u8; LONGEST + 1];
        current[0] = i as u8;
        for j in 1..=b.len() {
            let same = a[i - 1].eq_ignore_ascii_case(&b[j - 1]);
            let mut best = (previous[j - 1] + u8::from(!same)).min(previous[j] + 1);
            best = best.min(current[j - 1] + 1);
            let swapped = i > 1
                && j > 1
                && a[i - 1].eq_ignore_ascii_case(&b[j - 2])
                && a[i - 2].eq_ignore_ascii_case(&b[j - 1]);
            if swapped {
                best = best.min(before[j - 2] + 1);
            }
            current[j] = best;
        }
        before = previous;
        previous = current;
    }
    Some(usize::from(previous[b.len()]))
}
