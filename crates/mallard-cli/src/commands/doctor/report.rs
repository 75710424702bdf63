//! A line of a process's report file: one misuse, as the library says it.

use serde::Deserialize;

use crate::profiles::frames::Place;

/// A misuse. Fields that are not known here are passed over, and none but the kind is required.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Report {
    pub kind: String,
    #[serde(deserialize_with = "number")]
    pub address: u64,
    /// The process's own number for itself.
    pub process: u32,
    pub block: Option<Block>,
    /// What found it: `access`, `free`, or a `check` at a later moment.
    pub found_by: Option<String>,
    /// The first byte that changed and should not have, from the beginning of the block on.
    pub offset: Option<i64>,
    /// How many there are.
    pub bytes: Option<u64>,
    pub now: Option<Event>,
    pub allocated: Option<Event>,
    pub freed: Option<Event>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Block {
    #[serde(deserialize_with = "number")]
    pub address: u64,
    pub size: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Event {
    pub thread: u64,
    pub stack: Vec<Frame>,
}

/// A return address: in a file, or without one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Frame {
    pub file: String,
    pub offset: u64,
    pub build_id: String,
    #[serde(deserialize_with = "number")]
    pub address: u64,
}

impl Frame {
    pub fn place(&self) -> Place {
        Place {
            path: self.file.clone(),
            offset: self.offset,
            build_id: self.build_id.clone(),
        }
    }
}

/// What kind of misuse it is, as far as it matters for what is said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Overflow,
    Underflow,
    AfterFree,
    DoubleFree,
    /// A free of an address inside a block, or of none.
    InvalidFree,
    /// A free of memory that is not the heap's: the stack, static memory, another allocator's.
    ForeignFree,
    /// A free that does not fit the allocation: `delete` of what `new[]` gave, or a wrong size.
    Mismatch,
    Other,
}

impl Report {
    /// The reports in a file. A line that is cut off, as by a full disk, is passed over.
    pub fn all(text: &str) -> Vec<Report> {
        let lines = text.lines().filter(|line| line.starts_with('{'));
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .map(Report::at_its_damage)
            .collect()
    }

    /// The same at the first byte that changed.
    fn at_its_damage(mut self) -> Report {
        if let (Some(offset), Some(block)) = (self.offset, self.block) {
            self.address = block.address.wrapping_add_signed(offset);
        }
        self
    }

    pub fn kind(&self) -> Kind {
        const KINDS: [(&str, Kind); 14] = [
            ("of a block of", Kind::Mismatch),
            ("overflow", Kind::Overflow),
            ("underflow", Kind::Underflow),
            ("after free", Kind::AfterFree),
            ("double free", Kind::DoubleFree),
            ("free already", Kind::DoubleFree),
            ("mismatch", Kind::Mismatch),
            ("family", Kind::Mismatch),
            ("wrong size", Kind::Mismatch),
            ("wrong delete", Kind::Mismatch),
            ("size", Kind::Mismatch),
            ("foreign", Kind::ForeignFree),
            ("invalid free", Kind::InvalidFree),
            ("free", Kind::InvalidFree),
        ];
        // "underflow" has no "overflow" in it.
        let found = KINDS.iter().find(|(part, _)| self.kind.contains(part));
        found.map_or(Kind::Other, |(_, kind)| *kind)
    }

    /// Whether an access is the mistake, and not a free.
    fn is_access(&self) -> bool {
        matches!(
            self.kind(),
            Kind::Overflow | Kind::Underflow | Kind::AfterFree
        )
    }

    /// Whether the present stack is that of the mistake. Damage that a later call finds has another
    /// one; what a wrong free does is found by that free, or by a later check.
    pub fn is_exact(&self) -> bool {
        match self.found_by.as_deref() {
            Some("access") => true,
            // A block in use whose record was overwritten looks like one that is free.
            Some("free") if self.kind() == Kind::DoubleFree => self.freed.is_some(),
            Some("free") => !self.is_access(),
            Some(_) => false,
            None => !(self.is_access() && self.kind.contains("found")),
        }
    }

    /// The same of a run in which each free is checked at once: a free that is wrong in itself was
    /// not found later.
    pub fn of_checked_free(mut self) -> Report {
        if self.kind() == Kind::InvalidFree && self.found_by.as_deref() == Some("check") {
            self.found_by = Some("free".to_owned());
        }
        self
    }

    /// The library's word without how it was found: `overflow`.
    pub fn name(&self) -> &str {
        self.kind
            .split_once(" (found")
            .map_or(&*self.kind, |(name, _)| name)
            .trim_end_matches(" found")
    }

    /// The stack that allocated the block.
    pub fn site(&self) -> &[Frame] {
        self.allocated.as_ref().map_or(&[], |event| &event.stack)
    }
}

/// A number as such, or in hexadecimal in a string.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    Ok(match Either::deserialize(from)? {
        Either::Number(number) => number,
        Either::Text(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(serde::de::Error::custom)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"overflow (found by the free)","address":"0x10ff","process":7,
        "block":{"address":"0x10d8","size":40},"more":{"than":["is known"]},
        "now":{"thread":7,"stack":[{"file":"/bin/a","offset":4617,"build_id":"34f1"},{"address":"0x7f00"}]},
        "allocated":{"thread":7,"stack":[{"file":"/bin/a","offset":4594}]}}"#;

    #[test]
    fn a_line_is_read_with_its_block_and_stacks() {
        let line = LINE.replace('\n', "");
        let reports = Report::all(&format!("{line}\n{{\"kind\":\"cut o\nmallard: text\n"));
        let [report] = &reports[..] else {
            panic!("{reports:?}")
        };
        assert_eq!((report.address, report.process), (0x10ff, 7));
        let block = report.block.unwrap();
        assert_eq!((block.address, block.size), (0x10d8, 40));
        assert_eq!(report.kind(), Kind::Overflow);
        assert!(!report.is_exact());
        assert_eq!(report.name(), "overflow");
        assert_eq!(report.site()[0].offset, 4594);
        assert_eq!(report.now.as_ref().unwrap().stack[1].address, 0x7f00);
        assert_eq!(report.freed, None);
    }

    #[test]
    fn the_kinds_of_the_library_are_known() {
        let of = |kind: &str, found_by: Option<&str>| {
            let report = Report {
                freed: (kind == "double free").then(Event::default),
                kind: kind.to_owned(),
                found_by: found_by.map(str::to_owned),
                ..Report::default()
            };
            (report.kind(), report.is_exact())
        };
        for (kind, found_by, expected) in [
            ("overflow (write)", None, (Kind::Overflow, true)),
            ("underflow (read)", None, (Kind::Underflow, true)),
            ("write after free", None, (Kind::AfterFree, true)),
            ("write after free", Some("check"), (Kind::AfterFree, false)),
            ("double free", Some("free"), (Kind::DoubleFree, true)),
            ("a double free", Some("free"), (Kind::DoubleFree, false)),
            ("invalid free", None, (Kind::InvalidFree, true)),
            ("foreign free", None, (Kind::ForeignFree, true)),
            (
                "delete of a block of new[]",
                Some("free"),
                (Kind::Mismatch, true),
            ),
            ("double free", Some("check"), (Kind::DoubleFree, false)),
            ("family mismatch", None, (Kind::Mismatch, true)),
            ("another", None, (Kind::Other, true)),
        ] {
            assert_eq!(of(kind, found_by), expected, "{kind}");
        }
    }
}
