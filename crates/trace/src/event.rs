//! One thing that a thread did with the allocator.

pub use mallard_formats::event::{KINDS, Kind};

/// The unit of all times in a recording.
pub const UNIT_NS: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Since the recording began, in units of [`UNIT_NS`].
    pub when: u64,
    pub kind: Kind,
    /// The logarithm of the alignment that was asked for; 0 if none was.
    pub align: u8,
    pub address: u64,
    pub size: u64,
}

impl Event {
    pub fn new(when: u64, kind: Kind, address: u64, size: u64) -> Event {
        Event {
            when,
            kind,
            align: 0,
            address,
            size,
        }
    }
}
