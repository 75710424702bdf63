//! What a thread does with the allocator, as the probe writes it and as recordings (`.mtrace`) have
//! it.

/// What happened. The numbers are those of the file and of the probe's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `malloc` or an operator `new` returned the block.
    Malloc = 1,
    Calloc = 2,
    /// A block with an alignment of its own.
    Aligned = 3,
    Free = 4,
    /// A free that passes the size.
    SizedFree = 5,
    /// `realloc` begins, with this block, or with none (address 0).
    ReallocBegin = 6,
    /// The same `realloc` returned this block. Address 0 and size 0: it freed its block. Address 0
    /// and another size: it failed, and its block lives.
    ReallocEnd = 7,
    /// The usable size of the block was asked for.
    Query = 8,
    /// The allocator was asked to give memory back.
    Trim = 9,
    ThreadStart = 10,
    ThreadEnd = 11,
    /// The process is about to fork.
    Fork = 12,
    /// The recorder kept the thread waiting; the size is how long, in units of the clock.
    Stall = 13,
    /// The block of the free or `realloc` that follows was touched to this share; the size is the
    /// share in 255ths.
    Touched = 14,
    /// A request of this size was answered with no memory.
    Failed = 15,
}

pub const KINDS: [Kind; 15] = [
    Kind::Malloc,
    Kind::Calloc,
    Kind::Aligned,
    Kind::Free,
    Kind::SizedFree,
    Kind::ReallocBegin,
    Kind::ReallocEnd,
    Kind::Query,
    Kind::Trim,
    Kind::ThreadStart,
    Kind::ThreadEnd,
    Kind::Fork,
    Kind::Stall,
    Kind::Touched,
    Kind::Failed,
];

impl Kind {
    /// The one with the highest number.
    pub const LAST: Kind = KINDS[KINDS.len() - 1];

    pub fn from_number(number: u8) -> Option<Kind> {
        KINDS.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether a block begins here.
    pub fn begins(self) -> bool {
        matches!(
            self,
            Kind::Malloc | Kind::Calloc | Kind::Aligned | Kind::ReallocEnd
        )
    }

    /// Whether a block ends here, as far as this event shows.
    pub fn ends(self) -> bool {
        matches!(self, Kind::Free | Kind::SizedFree | Kind::ReallocBegin)
    }

    pub fn has_address(self) -> bool {
        self.begins() || self.ends() || self == Kind::Query
    }

    pub fn has_size(self) -> bool {
        self.begins() || matches!(self, Kind::Stall | Kind::Touched | Kind::Failed)
    }

    /// Whether the program made a call here: the two halves of `realloc` are one call.
    pub fn is_call(self) -> bool {
        matches!(self, Kind::Query | Kind::Trim | Kind::Failed)
            || self.begins()
            || (self.ends() && self != Kind::ReallocBegin)
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Malloc => "malloc",
            Kind::Calloc => "calloc",
            Kind::Aligned => "aligned",
            Kind::Free => "free",
            Kind::SizedFree => "free-sized",
            Kind::ReallocBegin => "realloc-of",
            Kind::ReallocEnd => "realloc-to",
            Kind::Query => "usable-size",
            Kind::Trim => "trim",
            Kind::ThreadStart => "thread-start",
            Kind::ThreadEnd => "thread-end",
            Kind::Fork => "fork",
            Kind::Stall => "stall",
            Kind::Touched => "touched",
            Kind::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_numbers() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index + 1);
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(16), None);
    }
}
