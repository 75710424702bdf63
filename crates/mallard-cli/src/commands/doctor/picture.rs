//! The block of a finding and what lies around it, in text.

use std::collections::BTreeSet;

use mallard_inspect::memory::heap::Place;

use super::advice::bytes;
use super::report::{Block, Kind, Report};

/// Bytes of a row.
pub const ROW_BYTES: u64 = 16;
pub type Row = [u8; ROW_BYTES as usize];

/// The rows that are shown: around the address, and around both ends of the block.
fn rows(block: Block, at: u64) -> BTreeSet<u64> {
    let row_of = |address: u64| address & !(ROW_BYTES - 1);
    let last = block.address.wrapping_add(block.size.max(1) - 1);
    let around = |row: u64, before: u64, behind: u64| {
        let first = row.saturating_sub(before * ROW_BYTES);
        (0..=before + behind).map(move |index| first.wrapping_add(index * ROW_BYTES))
    };
    around(row_of(block.address), 1, 0)
        .chain(around(row_of(at), 1, 1))
        .chain(around(row_of(last), 0, 1))
        .collect()
}

/// The process's memory.
pub trait Memory {
    /// Copies a row, if it may be accessed.
    fn row(&self, at: u64) -> Option<Row>;

    /// What an address lies in.
    fn place(&self, at: u64) -> Option<Place>;
}

/// A process that is gone.
pub struct Gone;

impl Memory for Gone {
    fn row(&self, _: u64) -> Option<Row> {
        None
    }

    fn place(&self, _: u64) -> Option<Place> {
        None
    }
}

/// The lines of the picture.
pub fn picture(report: &Report, memory: &dyn Memory) -> Vec<String> {
    let Some(block) = report.block else {
        return Vec::new();
    };
    let is_freed = report.freed.is_some() || report.kind() == Kind::AfterFree;
    let name = format!(
        "block of {}{}",
        bytes(block.size),
        if is_freed { ", freed" } else { "" }
    );
    let rows: Vec<(u64, Option<Row>)> = rows(block, report.address)
        .into_iter()
        .map(|at| (at, memory.row(at)))
        .collect();
    if rows.iter().all(|(_, row)| row.is_none()) {
        let mark = match report.kind() {
            Kind::DoubleFree | Kind::InvalidFree | Kind::ForeignFree => "the free",
            _ => "the access",
        };
        return outline(block, report.address, &name, mark);
    }
    let mut lines = Vec::new();
    let mut next = None;
    for (at, row) in rows {
        if let Some(left_out) = next
            .map(|next: u64| at.wrapping_sub(next))
            .filter(|&n| n > 0)
        {
            lines.push(format!("{:18}  … {}", "", bytes(left_out)));
        }
        next = Some(at.wrapping_add(ROW_BYTES));
        let neighbour = neighbour(block, at, memory);
        let owner = neighbour.unwrap_or_else(|| owner(block, at, &name));
        lines.push(line(at, row, report.address, &owner));
    }
    lines
}

/// What is known of a block whose memory cannot be read: where it lay.
fn outline(block: Block, at: u64, name: &str, mark: &str) -> Vec<String> {
    let mut marks = vec![
        (block.address, format!("{name}; its pages are closed")),
        (block.address.wrapping_add(block.size), "its end".to_owned()),
    ];
    marks.push((at, mark.to_owned()));
    marks.sort_by_key(|(at, _)| *at);
    let lines = marks.into_iter();
    lines
        .map(|(at, what)| format!("{:<18}  {what}", format!("{at:#x}")))
        .collect()
}

/// Another block that a row belongs to, if it is not one of the block itself.
fn neighbour(block: Block, row: u64, memory: &dyn Memory) -> Option<String> {
    let row_end = row.wrapping_add(ROW_BYTES);
    if row_end > block.address && row < block.address.wrapping_add(block.size) {
        return None;
    }
    let place = memory.place(row)?;
    let (start, size) = place.range()?;
    if (start..start.wrapping_add(size)).contains(&block.address) {
        return None;
    }
    let (Place::Region { is_free, .. } | Place::Large { is_free, .. }) = place else {
        return None;
    };
    let state = if is_free { ", free" } else { "" };
    let offset = row.wrapping_sub(start);
    Some(format!(
        "{} into another block of {}{state}",
        bytes(offset),
        bytes(size)
    ))
}

/// Whose a row is.
fn owner(block: Block, row: u64, name: &str) -> String {
    let (start, end) = (block.address, block.address.wrapping_add(block.size));
    let row_end = row.wrapping_add(ROW_BYTES);
    match () {
        () if row_end <= start => "before it".to_owned(),
        () if row >= end => "behind it".to_owned(),
        () if row <= start && end < row_end => format!("the {name}, and what is behind it"),
        () if row <= start => format!("the {name}"),
        () if end < row_end => format!("its last {}, and what is behind it", bytes(end - row)),
        () => "the block".to_owned(),
    }
}

fn line(at: u64, row: Option<Row>, marked: u64, owner: &str) -> String {
    let mut cells = String::new();
    let mut text = String::new();
    let mark = marked.wrapping_sub(at);
    for index in 0..ROW_BYTES {
        cells.push(match mark {
            mark if mark == index => '[',
            mark if index > 0 && mark == index - 1 => ']',
            _ => ' ',
        });
        match row.map(|row| row[index as usize]) {
            Some(byte) => {
                cells += &format!("{byte:02x}");
                let is_shown = byte == b' ' || byte.is_ascii_graphic();
                text.push(if is_shown { byte.into() } else { '.' });
            }
            None => cells += "--",
        }
    }
    cells.push(if mark == ROW_BYTES - 1 { ']' } else { ' ' });
    let text = match row {
        Some(_) => format!("|{text}|"),
        None => "no access".to_owned(),
    };
    let address = format!("{at:#x}");
    format!("{address:<18} {cells} {text:<18}  {owner}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rows<F>(F);

    impl<F: Fn(u64) -> Option<Row>> Memory for Rows<F> {
        fn row(&self, at: u64) -> Option<Row> {
            (self.0)(at)
        }

        fn place(&self, at: u64) -> Option<Place> {
            (0x1030..0x1060).contains(&at).then_some(Place::Region {
                start: 0x1030,
                bytes: 48,
                is_free: true,
            })
        }
    }

    fn report(kind: &str, at: u64, size: u64) -> Report {
        Report {
            kind: kind.to_owned(),
            address: at,
            block: Some(Block {
                address: 0x1000,
                size,
            }),
            ..Report::default()
        }
    }

    #[test]
    fn rows_have_the_bytes_their_owner_and_a_mark_at_the_address() {
        let read = |at: u64| {
            (at < 0x1030).then_some(if at < 0x1000 {
                [0xa5; 16]
            } else {
                *b"0123456789abcde\0"
            })
        };
        let lines = picture(
            &report("overflow (found by the free)", 0x1028, 40),
            &Rows(read),
        );
        let expected = [
            "0xff0               a5 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5  |................|  before it",
            "0x1000              30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 00  |0123456789abcde.|  the block of 40 bytes",
            "0x1010              30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 00  |0123456789abcde.|  the block",
            "0x1020              30 31 32 33 34 35 36 37[38]39 61 62 63 64 65 00  |0123456789abcde.|  its last 8 bytes, and what is behind it",
            "0x1030              -- -- -- -- -- -- -- -- -- -- -- -- -- -- -- --  no access           0 bytes into another block of 48 bytes, free",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_lies_between_is_left_out_and_closed_pages_leave_an_outline() {
        let lines = picture(
            &report("overflow (write)", 0x1fff, 100),
            &Rows(|_| Some([0; 16])),
        );
        assert!(
            lines.iter().any(|line| line.contains("… 80 bytes")),
            "{lines:#?}"
        );
        assert!(
            lines.iter().any(|line| line.contains(" 00[00] ")),
            "{lines:#?}"
        );
        let lines = picture(&report("read after free", 0x1008, 40), &Gone);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("block of 40 bytes, freed; its pages are closed"));
        assert!(lines[1].starts_with("0x1008 ") && lines[1].ends_with("the access"));
    }

    #[test]
    fn a_block_at_the_end_of_the_addresses_is_no_overflow() {
        let mut last = report("overflow (write)", u64::MAX, 8);
        last.block = Some(Block {
            address: u64::MAX - 7,
            size: u64::MAX,
        });
        picture(&last, &Rows(|_| Some([0; 16])));
    }
}
