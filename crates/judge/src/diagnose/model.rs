//! The figures of a program, and what they are judged to be. A report keeps both as they are, so
//! these structures are part of the JSON of `mallard diagnose`.

use serde::{Deserialize, Serialize};

/// Everything that was measured. A figure that could not be had is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub allocator: String,
    /// `dynamic`, `static`, `the program's own`.
    pub linkage: String,
    pub runs: u32,
    pub processes: u64,
    pub threads: u64,
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub exit: String,
    pub samples: u64,
    /// How much CPU time the probe added, as a share of the program's.
    pub probe_cost: Option<f64>,
    /// The share of CPU time inside the allocator, and its 95 % interval.
    pub inside: Option<f64>,
    pub inside_low: Option<f64>,
    pub inside_high: Option<f64>,
    /// Share of their time that busy threads wait inside the allocator.
    pub waiting: Option<f64>,
    /// The same by what they wait for.
    pub waits: Vec<(String, f64)>,
    /// The thread that runs most of its time, if there are several.
    #[serde(default)]
    pub busiest_thread: Option<BusyThread>,
    /// The three threads that wait most; those that are idle come last.
    #[serde(default)]
    pub waiting_threads: Vec<WaitingThread>,
    /// The share of thread time outside the allocator by what threads wait for.
    pub waits_outside: Vec<(String, f64)>,
    /// The share of thread time that they run.
    pub running: f64,
    pub calls: Calls,
    pub long_calls: Vec<(String, u64)>,
    pub longest_call_seconds: f64,
    /// System calls per second by kind: by the allocator, and by all others.
    pub syscalls: Vec<(String, f64, f64)>,
    pub faults: u64,
    /// Bytes of the system's page; 0 in results before this was kept.
    #[serde(default)]
    pub page_bytes: u64,
    /// The share of page faults that are not the first of their page.
    pub refaults: Option<f64>,
    /// Shares of page faults by what lies at their addresses.
    #[serde(default)]
    pub fault_kinds: Vec<(String, f64)>,
    /// The share of CPU time that page faults, and those that are not the first, take.
    pub fault_share: f64,
    pub refault_share: f64,
    pub peak_rss: u64,
    /// Live bytes when RSS was at its peak, within a hundredth, and the peak of live bytes, which
    /// may be at another time.
    pub live_at_peak: Option<i64>,
    pub peak_live: Option<i64>,
    /// The growth of live memory is a line: its end over its beginning.
    pub grows: Option<Growth>,
    pub end: Option<EndMemory>,
    /// What a process on Mallard says of its own heap.
    #[serde(default)]
    pub heap: Option<Heap>,
    /// The share of the last quarter of the run in which memory was as far above live bytes as
    /// matters.
    pub held_late: Option<f64>,
    /// A front allocator of the program's own.
    pub pool: Option<String>,
    /// Of several processes, the one that all of these figures are of.
    #[serde(default)]
    pub heaviest: Option<Heaviest>,
}

/// The process of a family that computes most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Heaviest {
    pub pid: u32,
    pub program: String,
    /// Its share of the CPU time of all processes, and how many there are.
    pub share: f64,
    pub processes: u64,
    /// The program that the first process ran, if it is another one.
    pub started_by: Option<String>,
}

/// A thread that runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BusyThread {
    pub name: String,
    pub id: u32,
    /// The share of its time.
    pub share: f64,
}

/// A thread that waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingThread {
    pub name: String,
    pub id: u32,
    /// The share of its time, and what it waits for most.
    pub share: f64,
    pub kind: String,
    /// Whether it only waits for work to come.
    pub is_idle: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub mallocs: u64,
    pub frees: u64,
    pub reallocs: u64,
    pub mallocs_per_second: f64,
    pub frees_per_second: f64,
    /// The share of blocks that another thread frees.
    pub freed_elsewhere: Option<f64>,
    /// The share of blocks that live shorter than a millisecond.
    pub short_lived: Option<f64>,
    pub median_size: Option<u64>,
    /// The share of requests above 64 KiB.
    pub large: Option<f64>,
    /// The share of requested bytes in requests of 32 KiB to 256 KiB.
    pub middle_bytes: Option<f64>,
    /// Requests by number of bits of their size.
    pub sizes: Vec<u64>,
    /// Upper ends of lifetimes in seconds, and how many blocks.
    pub lifetimes: Vec<(f64, u64)>,
    /// Frees by the thread that allocated (row) and freed (column).
    pub matrix: Vec<Vec<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    pub bytes_per_second: f64,
    /// How well a line fits, up to 1.
    pub fit: f64,
    /// The growth over the run as a share of the peak.
    pub share: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EndMemory {
    pub rss: u64,
    pub lazy: u64,
    pub anonymous: u64,
    pub live: i64,
    /// Bytes that went back when the allocator was asked; none if it was not asked.
    pub returned: Option<u64>,
}

/// A heap as its allocator sees it, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// How long before the end of the watch it said so.
    pub age_seconds: f64,
    /// Blocks that the program holds.
    pub allocated: u64,
    /// Pages with such blocks.
    pub active: u64,
    /// An upper bound of the memory behind all of it.
    pub resident: u64,
    /// Free pages that still have memory.
    pub free: u64,
    /// Free blocks in caches.
    pub cached: u64,
    /// The allocator's own records.
    pub metadata: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Yes,
    No,
    /// The interval reaches from what does not matter to what does.
    Perhaps,
    CannotTell,
}

/// What is asked: whether the allocator costs time, and whether it keeps memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    Time,
    Memory,
}

/// How much faster the program could be if malloc and free, and the page faults of their heap, cost
/// nothing, as a factor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub low: f64,
    pub high: f64,
    /// The part of malloc and free themselves, where page faults have one.
    #[serde(default)]
    pub calls: Option<(f64, f64)>,
    /// The likely one, where page faults have a part.
    pub without_faults: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKey {
    Locks,
    Growth,
    SlowPurge,
    HandOff,
    Caches,
    Work,
    ToAndFro,
    Decay,
    Trim,
    Mmap,
    Leak,
    HeldBack,
    Pinned,
    Kept,
    OwnLock,
    Io,
    Idle,
    Child,
    Waits,
    Pool,
    Computing,
    /// A word that only a newer version knows.
    #[serde(untagged)]
    Other(String),
}

impl TroubleKey {
    /// Whether it is one of time or of memory.
    pub fn aspect(&self) -> Aspect {
        match self {
            TroubleKey::Leak | TroubleKey::HeldBack | TroubleKey::Pinned | TroubleKey::Kept => {
                Aspect::Memory
            }
            _ => Aspect::Time,
        }
    }

    /// The word in files.
    pub fn as_str(&self) -> &str {
        match self {
            TroubleKey::Locks => "locks",
            TroubleKey::Growth => "growth",
            TroubleKey::SlowPurge => "slow_purge",
            TroubleKey::HandOff => "hand_off",
            TroubleKey::Caches => "caches",
            TroubleKey::Work => "work",
            TroubleKey::ToAndFro => "to_and_fro",
            TroubleKey::Decay => "decay",
            TroubleKey::Trim => "trim",
            TroubleKey::Mmap => "mmap",
            TroubleKey::Leak => "leak",
            TroubleKey::HeldBack => "held_back",
            TroubleKey::Pinned => "pinned",
            TroubleKey::Kept => "kept",
            TroubleKey::OwnLock => "own_lock",
            TroubleKey::Io => "io",
            TroubleKey::Idle => "idle",
            TroubleKey::Child => "child",
            TroubleKey::Waits => "waits",
            TroubleKey::Pool => "pool",
            TroubleKey::Computing => "computing",
            TroubleKey::Other(word) => word,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_word_in_files_and_an_unknown_word_is_kept() {
        let words = "locks growth slow_purge hand_off caches work to_and_fro decay trim mmap leak \
                     held_back pinned kept own_lock io idle child waits pool computing newer";
        for word in words.split(' ') {
            let json = format!("\"{word}\"");
            let key: TroubleKey = serde_json::from_str(&json).unwrap();
            assert_eq!(key.as_str(), word);
            assert_eq!(matches!(key, TroubleKey::Other(_)), word == "newer");
            assert_eq!(serde_json::to_string(&key).unwrap(), json);
        }
    }
}
