//! The seeds' experiments as rows of the suite: the main row of each, without the options that it
//! varies, and with less work where many threads repeat what few have shown.

use super::{Group, Program, SuiteRow};

const MIB: u64 = 1 << 20;

/// pairs with so many threads.
macro_rules! pairs {
    ($name:literal, $threads:literal, $count:literal, $quick:literal, $seconds:expr) => {
        SuiteRow {
            name: $name,
            group: Group::Seeds,
            title: "malloc and free in pairs",
            description: "Each thread allocates a block of 128 bytes, writes its first byte and frees it, over and \
                          over: the fast paths and nothing else.",
            seconds_are: None,
            program: Program::Workload {
                name: "pairs",
                arguments: &[concat!("threads=", $threads), concat!("count=", $count)],
                quick: &[concat!("threads=", $threads), concat!("count=", $quick)],
            },
            threads: $threads,
            seconds: $seconds,
            peak_bytes: [8 * MIB; 2],
            settings: &[],
        }
    };
}

const MAP: &str =
    "A C++ std::map<int, int> takes the numbers from 0 upwards and ends, in one thread";

pub const ROWS: &[SuiteRow] = &[
    pairs!("pairs-1", 1, 20000000, 4000000, [0.3, 0.06]),
    pairs!("pairs-4", 4, 10000000, 2000000, [0.3, 0.06]),
    pairs!("pairs-16", 16, 3000000, 600000, [0.35, 0.07]),
    pairs!("pairs-32", 32, 1500000, 300000, [0.35, 0.07]),
    pairs!("pairs-64", 64, 750000, 150000, [0.35, 0.07]),
    SuiteRow {
        name: "batch",
        group: Group::Seeds,
        title: "many small blocks, then all freed",
        description: "Each of 32 threads allocates blocks of 16 to 255 bytes into a list, then frees them all.",
        seconds_are: None,
        program: Program::Workload {
            name: "batch",
            arguments: &["threads=32", "count=500000"],
            quick: &["threads=32", "count=60000"],
        },
        threads: 32,
        seconds: [1.2, 0.2],
        peak_bytes: [1900 * MIB, 250 * MIB],
        settings: &[],
    },
    SuiteRow {
        name: "arenas",
        group: Group::Seeds,
        title: "growth in many threads",
        description: "Each of 16 threads allocates blocks of 256 bytes and clears each, then frees them all.",
        seconds_are: None,
        program: Program::Workload {
            name: "arenas",
            arguments: &["threads=16", "count=100000"],
            quick: &["threads=16", "count=25000"],
        },
        threads: 16,
        seconds: [0.3, 0.08],
        peak_bytes: [420 * MIB, 110 * MIB],
        settings: &[],
    },
    SuiteRow {
        name: "tune",
        group: Group::Seeds,
        title: "random sizes up to a page",
        description: "Each of 16 threads allocates blocks of 16 to 4096 bytes and fills each, then frees them all.",
        seconds_are: None,
        program: Program::Workload {
            name: "tune",
            arguments: &["threads=16", "count=50000"],
            quick: &["threads=16", "count=10000"],
        },
        threads: 16,
        seconds: [1.2, 0.25],
        peak_bytes: [1650 * MIB, 350 * MIB],
        settings: &[],
    },
    SuiteRow {
        name: "map",
        group: Group::Seeds,
        title: "std::map filled in order",
        description: MAP,
        seconds_are: None,
        program: Program::Workload {
            name: "map",
            arguments: &["count=10000000"],
            quick: &["count=1000000"],
        },
        threads: 1,
        seconds: [1.5, 0.15],
        peak_bytes: [620 * MIB, 65 * MIB],
        settings: &[],
    },
    SuiteRow {
        name: "map-linked",
        group: Group::Seeds,
        title: "std::map filled in order, the allocator linked",
        description: MAP,
        seconds_are: None,
        program: Program::LinkedMap {
            arguments: &["count=10000000"],
            quick: &["count=1000000"],
        },
        threads: 1,
        seconds: [1.5, 0.15],
        peak_bytes: [620 * MIB, 65 * MIB],
        settings: &[],
    },
];
