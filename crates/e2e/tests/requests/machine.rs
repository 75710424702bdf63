//! Which requests the system grants for certain, and which it refuses for certain. Between these,
//! two allocators that need different mappings for a block may differ.

use std::fs;

/// Half of the addresses of a process are the program's.
const ADDRESSES: u64 = 1 << 47;

/// A limit that the program sets in some places (`LIMIT` in `programs/requests.c`).
const OWN_LIMIT: u64 = 4 << 30;

/// What the system has to grant.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// A single request beyond this is refused.
    single: u64,
    /// All requests together are refused beyond this.
    total: u64,
}

impl Machine {
    /// One that grants every request, as far as there are addresses.
    pub const GRANTING: Machine = Machine {
        single: ADDRESSES,
        total: ADDRESSES,
    };

    /// # Panics
    /// If `/proc` does not say how the system overcommits memory.
    pub fn here() -> Machine {
        let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory").expect("the mode");
        let info = fs::read_to_string("/proc/meminfo").expect("the machine's memory");
        let bytes = |name: &str| -> u64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            kib.unwrap_or_else(|| panic!("no {name} in {info}")) << 10
        };
        match mode.trim() {
            // Each mapping alone has to fit.
            "0" => Machine {
                single: bytes("MemTotal") + bytes("SwapTotal"),
                total: ADDRESSES,
            },
            "1" => Machine::GRANTING,
            _ => Machine {
                single: bytes("CommitLimit"),
                total: bytes("CommitLimit").saturating_sub(bytes("Committed_AS")),
            },
        }
    }

    /// The same machine, for a process that sets the limit.
    pub fn with_limit(self) -> Machine {
        Machine {
            single: self.single.min(OWN_LIMIT),
            total: self.total.min(OWN_LIMIT),
        }
    }

    /// Whether the last of `count` requests of this size and alignment is granted or refused on any
    /// allocator; unknown near the limit.
    pub fn verdict(self, size: u64, alignment: u64, count: u64) -> Option<bool> {
        let length = size.saturating_add(alignment);
        if size >= self.single.saturating_mul(2) {
            return Some(false);
        }
        let is_granted =
            length <= self.single / 2 && length.saturating_mul(count) <= self.total / 4;
        is_granted.then_some(true)
    }
}
