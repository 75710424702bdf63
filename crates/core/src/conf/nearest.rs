//! The option whose name is nearest to a mistyped one.
//!
//! Edit distance in which swapping neighbouring letters counts as one mistake (optimal string
//! alignment), with three rows of fixed length.

use super::options::TABLE;

/// At least as long as any option's name (a test checks this); longer mistyped names are not
/// compared.
pub(super) const NAME_BYTES_MAX: usize = 48;

/// The option that `key` was probably meant to be.
pub(super) fn nearest(key: &[u8]) -> Option<&'static str> {
    // With more than a third of the letters wrong, it is not a typing mistake.
    let tolerance = (key.len() / 3).max(1);
    let by_distance = TABLE
        .iter()
        .filter_map(|option| Some((distance(key, option.name().as_bytes())?, option.name())))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name);
    by_distance.or_else(|| containing(key))
}

/// The shortest option whose name contains `key` (`decay` finds `dirty_decay_ms`).
fn containing(key: &[u8]) -> Option<&'static str> {
    if key.len() < 3 {
        return None;
    }
    TABLE
        .iter()
        .map(|option| option.name())
        .filter(|name| name.as_bytes().windows(key.len()).any(|part| part == key))
        .min_by_key(|name| name.len())
}

/// How many letters must be changed, added, removed or swapped with their neighbour to turn one
/// word into the other, ignoring case. `None` if a word is longer than `NAME_BYTES_MAX`.
pub(super) fn distance(a: &[u8], b: &[u8]) -> Option<usize> {
    if a.len() > NAME_BYTES_MAX || b.len() > NAME_BYTES_MAX {
        return None;
    }
    // `previous.at(j)` is the distance from the letters of `a` before this one to the first `j`
    // letters of `b`; `before` is the row above that one.
    let mut before = Row::EMPTY;
    let mut previous = Row::EMPTY;
    for j in 0..=b.len() {
        previous.set(j, j as u8);
    }
    for (i, x) in a.iter().enumerate() {
        let mut current = Row::EMPTY;
        current.set(0, i as u8 + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = previous.at(j) + u8::from(!x.eq_ignore_ascii_case(y));
            let mut best = changed.min(previous.at(j + 1) + 1).min(current.at(j) + 1);
            if swapped(a.get(..=i), b.get(..=j)) {
                best = best.min(before.at(j - 1) + 1);
            }
            current.set(j + 1, best);
        }
        before = previous;
        previous = current;
    }
    Some(usize::from(previous.at(b.len())))
}

/// Whether the two words end in the same two letters in opposite order.
fn swapped(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (Some([.., a0, a1]), Some([.., b0, b1])) => {
            a0.eq_ignore_ascii_case(b1) && a1.eq_ignore_ascii_case(b0)
        }
        _ => false,
    }
}

/// A row of distances, none above `NAME_BYTES_MAX`.
#[derive(Clone, Copy)]
struct Row([u8; NAME_BYTES_MAX + 1]);

impl Row {
    const EMPTY: Row = Row([0; NAME_BYTES_MAX + 1]);

    /// The cell at `j`. Beyond the row, which no caller reaches, it is the maximum: this module
    /// must not be able to panic.
    fn at(&self, j: usize) -> u8 {
        self.0.get(j).copied().unwrap_or(NAME_BYTES_MAX as u8)
    }

    fn set(&mut self, j: usize, value: u8) {
        if let Some(cell) = self.0.get_mut(j) {
            *cell = value;
        }
    }
}
