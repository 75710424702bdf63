//! The columns of the table of processes.

use std::cmp::Ordering;

use unicode_width::UnicodeWidthStr;

use crate::processes::figures::{bytes, count, percent};
use crate::processes::row::Row;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Pid,
    Command,
    Alloc,
    Active,
    Resid,
    Frag,
    Dirty,
    Cached,
    Meta,
    Rate,
    Return,
    Threads,
    Worst,
    Prof,
}

/// In the order on the screen.
pub const ORDER: [Column; 14] = [
    Column::Pid,
    Column::Command,
    Column::Alloc,
    Column::Active,
    Column::Resid,
    Column::Frag,
    Column::Dirty,
    Column::Cached,
    Column::Meta,
    Column::Rate,
    Column::Return,
    Column::Threads,
    Column::Worst,
    Column::Prof,
];

/// Those that go first where there is no room.
const DISPENSABLE: [Column; 11] = [
    Column::Meta,
    Column::Return,
    Column::Active,
    Column::Cached,
    Column::Threads,
    Column::Worst,
    Column::Rate,
    Column::Dirty,
    Column::Prof,
    Column::Frag,
    Column::Alloc,
];

/// The least and the most columns of a command's name.
const COMMAND_WIDTH_COLUMNS: (usize, usize) = (12, 40);

impl Column {
    pub fn title(self) -> &'static str {
        match self {
            Column::Pid => "PID",
            Column::Command => "COMMAND",
            Column::Alloc => "ALLOC",
            Column::Active => "ACTIVE",
            Column::Resid => "RESID",
            Column::Frag => "FRAG",
            Column::Dirty => "DIRTY",
            Column::Cached => "CACHED",
            Column::Meta => "META",
            Column::Rate => "ALLOC/s",
            Column::Return => "RETURN/s",
            Column::Threads => "THR",
            Column::Worst => "WORST CLASS",
            Column::Prof => "PROF",
        }
    }

    /// The word by which the command line knows it.
    pub fn key(self) -> &'static str {
        match self {
            Column::Pid => "pid",
            Column::Command => "command",
            Column::Alloc => "alloc",
            Column::Active => "active",
            Column::Resid => "resid",
            Column::Frag => "frag",
            Column::Dirty => "dirty",
            Column::Cached => "cached",
            Column::Meta => "meta",
            Column::Rate => "rate",
            Column::Return => "return",
            Column::Threads => "threads",
            Column::Worst => "worst",
            Column::Prof => "prof",
        }
    }

    fn width(self) -> usize {
        match self {
            Column::Pid => 7,
            Column::Command => COMMAND_WIDTH_COLUMNS.0,
            Column::Frag => 5,
            Column::Meta | Column::Threads | Column::Prof => 5,
            Column::Rate => 7,
            Column::Return => 8,
            Column::Worst => 11,
            _ => 6,
        }
    }

    fn is_text(self) -> bool {
        self == Column::Command
    }

    pub fn text(self, row: &Row) -> String {
        let totals = &row.snapshot.totals;
        match self {
            Column::Pid => row.pid().to_string(),
            Column::Command => row.title(),
            Column::Alloc => bytes(totals.allocated),
            Column::Active => bytes(totals.active),
            Column::Resid => bytes(totals.resident),
            Column::Frag => percent(totals.fragmentation()),
            Column::Dirty => bytes(totals.dirty),
            Column::Cached => bytes(totals.cached()),
            Column::Meta => bytes(totals.metadata),
            Column::Rate => row.rates.map_or("-".into(), |rates| count(rates.taken)),
            Column::Return => row
                .rates
                .map_or("-".into(), |rates| bytes(rates.returned as u64)),
            Column::Threads => totals.threads.to_string(),
            Column::Worst => row.snapshot.worst_class().map_or("-".into(), |class| {
                format!("{} {}", bytes(class.size), percent(class.utilization()))
            }),
            Column::Prof => totals.sampling().map_or("off".into(), bytes),
        }
    }

    /// The largest first, but for numbers and names of processes.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by = |of: fn(&Row) -> f64| of(b).total_cmp(&of(a));
        match self {
            Column::Pid => a.pid().cmp(&b.pid()),
            Column::Command => a.about.name.cmp(&b.about.name),
            Column::Alloc => by(|row| row.snapshot.totals.allocated as f64),
            Column::Active => by(|row| row.snapshot.totals.active as f64),
            Column::Resid => by(|row| row.snapshot.totals.resident as f64),
            Column::Frag => by(|row| row.snapshot.totals.fragmentation()),
            Column::Dirty => by(|row| row.snapshot.totals.dirty as f64),
            Column::Cached => by(|row| row.snapshot.totals.cached() as f64),
            Column::Meta => by(|row| row.snapshot.totals.metadata as f64),
            Column::Rate => by(|row| row.rates.map_or(-1.0, |rates| rates.taken)),
            Column::Return => by(|row| row.rates.map_or(-1.0, |rates| rates.returned)),
            Column::Threads => by(|row| row.snapshot.totals.threads as f64),
            Column::Worst => by(|row| {
                row.snapshot
                    .worst_class()
                    .map_or(0.0, |class| class.unused() as f64)
            }),
            Column::Prof => by(|row| row.snapshot.totals.is_sampling as f64),
        }
    }
}

/// Sorts by a column, and then by number.
pub fn sort(rows: &mut [Row], by: Column) {
    rows.sort_by(|a, b| by.compare(a, b).then(a.pid().cmp(&b.pid())));
}

/// The columns that fit, with their widths.
pub struct Layout(Vec<(Column, usize)>);

impl Layout {
    /// For a screen of this width; without one, all columns.
    pub fn new(width: Option<usize>, sorted_by: Column) -> Layout {
        let mut columns: Vec<(Column, usize)> = ORDER.map(|c| (c, c.width())).to_vec();
        let Some(width) = width else {
            columns[1].1 = COMMAND_WIDTH_COLUMNS.1 / 2;
            return Layout(columns);
        };
        let sum = |columns: &[(Column, usize)]| columns.iter().map(|(_, n)| n + 1).sum::<usize>();
        for gone in DISPENSABLE.iter().filter(|&&gone| gone != sorted_by) {
            if sum(&columns) <= width + 1 {
                break;
            }
            columns.retain(|(column, _)| column != gone);
        }
        let more = (width + 1).saturating_sub(sum(&columns));
        columns[1].1 = (COMMAND_WIDTH_COLUMNS.0 + more).min(COMMAND_WIDTH_COLUMNS.1);
        Layout(columns)
    }

    pub fn header(&self) -> String {
        self.line(|column| column.title().to_owned())
    }

    pub fn row(&self, row: &Row) -> String {
        self.line(|column| column.text(row))
    }

    fn line(&self, text: impl Fn(Column) -> String) -> String {
        let cells = self.0.iter().map(|&(column, width)| {
            let text = clipped(&text(column), width);
            let space = " ".repeat(width.saturating_sub(text.width()));
            if column.is_text() {
                text + &space
            } else {
                space + &text
            }
        });
        cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }
}

/// The beginning of a text that fits; control characters are left out.
pub fn clipped(text: &str, width: usize) -> String {
    let mut clipped = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        clipped.push(c);
        if clipped.width() > width {
            clipped.pop();
            break;
        }
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_of_80_columns_shows_what_matters_and_what_is_sorted_by() {
        let layout = Layout::new(Some(80), Column::Resid);
        let header = layout.header();
        assert!(header.width() <= 80, "{header}");
        for title in ["PID", "COMMAND", "ALLOC", "RESID", "FRAG", "DIRTY", "PROF"] {
            assert!(header.contains(title), "{header}");
        }
        assert!(!header.contains("META"));
        assert!(
            Layout::new(Some(80), Column::Meta)
                .header()
                .contains("META")
        );
        assert!(
            Layout::new(Some(20), Column::Pid)
                .header()
                .starts_with("    PID COMMAND")
        );
        let wide = Layout::new(Some(200), Column::Pid).header();
        assert!(ORDER.iter().all(|column| wide.contains(column.title())));
    }

    #[test]
    fn names_cannot_write_on_the_screen_by_themselves() {
        assert_eq!(clipped("a\x1b[31m\nb", 10), "a[31mb");
        assert_eq!(clipped("日本語", 5), "日本");
    }
}
