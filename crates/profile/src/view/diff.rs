//! Two profiles compared: rows of the same key side by side.

use std::collections::HashMap;

use super::rows::{By, Origin, rows};
use super::{Absent, SampleTypes, View};
use crate::model::Profile;

/// What a row was and is.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub key: String,
    pub before: i128,
    pub after: i128,
    pub blocks_before: Option<i128>,
    pub blocks_after: Option<i128>,
    /// Of the profile with more in this row.
    pub heaviest: Origin,
}

impl Change {
    pub fn growth(&self) -> i128 {
        self.after - self.before
    }

    pub fn blocks_growth(&self) -> Option<i128> {
        Some(self.blocks_after? - self.blocks_before?)
    }
}

/// The rows that differ, those that grew most first.
///
/// # Errors
/// One of the profiles lacks the figures.
pub fn changes(
    before: &Profile,
    after: &Profile,
    view: View,
    by: By,
) -> Result<Vec<Change>, Absent> {
    let of_before = view.figures(before)?;
    let of_after = view.figures(after)?;
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut changes: Vec<Change> = Vec::new();
    for row in rows(before, of_before, by) {
        known.insert(row.key.clone(), changes.len());
        changes.push(Change {
            before: row.main(of_before),
            after: 0,
            blocks_before: row.blocks(of_before),
            blocks_after: of_after.blocks.map(|_| 0),
            key: row.key,
            heaviest: row.heaviest,
        });
    }
    for row in rows(after, of_after, by) {
        let (main, blocks) = (row.main(of_after), row.blocks(of_after));
        match known.get(&row.key) {
            Some(&place) => {
                let change = &mut changes[place];
                (change.after, change.blocks_after) = (main, blocks);
                if main > change.before {
                    change.heaviest = row.heaviest;
                }
            }
            None => changes.push(Change {
                before: 0,
                after: main,
                blocks_before: of_before.blocks.map(|_| 0),
                blocks_after: blocks,
                key: row.key,
                heaviest: row.heaviest,
            }),
        }
    }
    changes.retain(|change| change.growth() != 0);
    changes.sort_by(|a, b| b.growth().cmp(&a.growth()).then_with(|| a.key.cmp(&b.key)));
    Ok(changes)
}

/// The totals of both.
pub fn totals(before: (&Profile, SampleTypes), after: (&Profile, SampleTypes)) -> (i128, i128) {
    (before.0.total(before.1.main), after.0.total(after.1.main))
}
