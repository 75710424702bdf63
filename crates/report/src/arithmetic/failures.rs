//! Programs that fail in some runs: how often under each allocator, and whether that is more often
//! than under glibc beyond doubt.

use mallard_judge::statistics::fisher::{CERTAIN_P_MAX, Count, fisher, is_more};

use super::stats::BASELINE;
use crate::model::{Cell, Results, Row};
use crate::units;

/// What the counts of a row say, in sentences; none if no run failed.
pub fn sentences(r: &Results) -> Vec<String> {
    let rows = r.experiments.iter().flat_map(|e| &e.rows);
    rows.flat_map(of_row).collect()
}

fn count(cell: &Cell) -> Option<Count> {
    let attempts = cell.attempts.as_ref()?;
    Some(Count {
        failed: attempts.failed,
        of: attempts.of,
    })
}

fn of_row(row: &Row) -> Vec<String> {
    let cells = row.cells.iter();
    let counted: Vec<(&Cell, Count)> = cells.filter_map(|c| Some((c, count(c)?))).collect();
    if counted.iter().all(|(_, count)| count.failed == 0) {
        return Vec::new();
    }
    let each: Vec<String> = counted.iter().map(|(cell, c)| shown(cell, c)).collect();
    let mut all = vec![format!(
        "Runs that failed were repeated and are in no figure: {}.",
        each.join(", ")
    )];
    let base = counted.iter().find(|(cell, _)| cell.allocator == BASELINE);
    let Some((_, base)) = base else { return all };
    let others = || {
        counted
            .iter()
            .filter(|(cell, _)| cell.allocator != BASELINE)
    };
    for (cell, c) in others() {
        let (own, glibc) = ((cell.allocator.as_str(), *c), (BASELINE, *base));
        let (more, less) = match (is_more(*c, *base), is_more(*base, *c)) {
            (true, _) => (own, glibc),
            (_, true) => (glibc, own),
            _ => continue,
        };
        all.push(format!(
            "It fails more often under {} than under {}: {} of {} runs and {} of {} (Fisher's exact test, p = {}).",
            more.0,
            less.0,
            more.1.failed,
            more.1.of,
            less.1.failed,
            less.1.of,
            units::significant(fisher(*c, *base))
        ));
    }
    if all.len() == 1 && counted.len() > 1 {
        let least = others().map(|(_, c)| fisher(*c, *base)).fold(1.0, f64::min);
        all.push(format!(
            "That is no certain difference from glibc: counts as far apart come by chance in {} % of sessions (Fisher's exact test; {:.0} % or less would be certain). More runs (-r) may tell.",
            units::significant(least * 100.0),
            CERTAIN_P_MAX * 100.0
        ));
    }
    all
}

fn shown(cell: &Cell, c: &Count) -> String {
    let how = cell
        .attempts
        .as_ref()
        .and_then(|attempts| attempts.how.as_ref());
    let how = how.map_or(String::new(), |how| format!(" ({how})"));
    format!("{} {} of {}{how}", cell.allocator, c.failed, c.of)
}

/// How often a cell failed, beside its exit status; empty if it never did.
pub fn beside_exit(cell: &Cell) -> String {
    match count(cell) {
        Some(Count { failed: 1.., of }) => {
            format!(
                ", {} of {of} failed",
                cell.attempts.as_ref().map_or(0, |a| a.failed)
            )
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Attempts;

    fn said(counts: [(&str, usize, usize); 2]) -> Vec<String> {
        let cell = |(name, failed, of): (&str, usize, usize)| Cell {
            allocator: name.to_owned(),
            runs: Vec::new(),
            failure: None,
            attempts: Some(Attempts {
                failed,
                of,
                how: (failed > 0).then(|| "exit code 1".to_owned()),
            }),
        };
        of_row(&Row::plain("job".to_owned(), counts.map(cell).to_vec()))
    }

    #[test]
    fn one_failure_is_counted_and_blames_nobody() {
        let all = said([("glibc", 0, 7), ("mallard", 1, 8)]);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(
            all[0].ends_with("glibc 0 of 7, mallard 1 of 8 (exit code 1)."),
            "{all:?}"
        );
        assert!(
            all[1].contains("no certain difference") && all[1].contains("100 % of sessions"),
            "{all:?}"
        );
        assert!(said([("glibc", 0, 7), ("mallard", 0, 7)]).is_empty());
        // It does not read like the limit, which is 1 %.
        let all = said([("glibc", 0, 6), ("mallard", 3, 3)]);
        assert!(all[1].contains("chance in 1.19 % of sessions"), "{all:?}");
    }

    #[test]
    fn a_certain_difference_is_blamed_on_the_one_that_fails() {
        let all = said([("glibc", 0, 7), ("mallard", 3, 3)]);
        assert!(
            all[1].contains("more often under mallard than under glibc: 3 of 3 runs and 0 of 7"),
            "{all:?}"
        );
        let all = said([("glibc", 9, 9), ("mallard", 0, 7)]);
        assert!(
            all[1].contains(
                "more often under glibc than under mallard: 9 of 9 runs and 0 of 7 (Fisher"
            ),
            "{all:?}"
        );
    }
}
