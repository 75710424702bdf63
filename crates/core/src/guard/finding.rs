//! What a misuse of a guarded block is.

use super::pool::SlotPlace;

/// What is wrong with an access or a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Overflow,
    Underflow,
    AfterFree,
    DoubleFree,
    InvalidFree,
}

/// What an access was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessed {
    Read,
    Write,
    /// The system does not say.
    Unknown,
    /// It was before the block was freed, which found it.
    Before,
}

impl Accessed {
    pub fn of(is_write: Option<bool>) -> Accessed {
        match is_write {
            Some(true) => Accessed::Write,
            Some(false) => Accessed::Read,
            None => Accessed::Unknown,
        }
    }
}

/// Something that is wrong, at this address, with the block of a slot.
pub struct Finding {
    pub kind: Kind,
    pub accessed: Accessed,
    pub at: usize,
    pub place: SlotPlace,
}

impl Finding {
    /// What the report calls it.
    pub fn name(&self) -> &'static str {
        Finding::name_of(self.kind, self.accessed)
    }

    fn name_of(kind: Kind, accessed: Accessed) -> &'static str {
        use Accessed::{Before, Read, Write};
        match (kind, accessed) {
            (Kind::Overflow, Read) => "overflow (read)",
            (Kind::Overflow, Before) => "overflow (found by the free)",
            (Kind::Overflow, _) => "overflow (write)",
            (Kind::Underflow, Read) => "underflow (read)",
            (Kind::Underflow, Before) => "underflow (found by the free)",
            (Kind::Underflow, _) => "underflow (write)",
            (Kind::AfterFree, Read) => "read after free",
            (Kind::AfterFree, Write) => "write after free",
            (Kind::AfterFree, _) => "use after free",
            (Kind::DoubleFree, _) => "double free",
            (Kind::InvalidFree, _) => "invalid free",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_misuse_has_its_name() {
        let name = |kind, accessed| Finding::name_of(kind, accessed);
        for (kind, accessed, expected) in [
            (Kind::Overflow, Accessed::of(Some(false)), "overflow (read)"),
            (Kind::Overflow, Accessed::of(Some(true)), "overflow (write)"),
            (
                Kind::Overflow,
                Accessed::Before,
                "overflow (found by the free)",
            ),
            (Kind::Underflow, Accessed::Read, "underflow (read)"),
            (
                Kind::Underflow,
                Accessed::Before,
                "underflow (found by the free)",
            ),
            (Kind::AfterFree, Accessed::Read, "read after free"),
            (Kind::AfterFree, Accessed::Write, "write after free"),
            (Kind::AfterFree, Accessed::of(None), "use after free"),
            (Kind::DoubleFree, Accessed::Unknown, "double free"),
            (Kind::InvalidFree, Accessed::Unknown, "invalid free"),
        ] {
            assert_eq!(name(kind, accessed), expected);
        }
    }
}
