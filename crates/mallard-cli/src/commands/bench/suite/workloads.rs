//! Rows of the programs in `bench/workloads` beyond the basic experiments. Parameters that are not
//! given here have the defaults listed at the head of the program.

use super::{Group, Program, SuiteRow};
use crate::workloads::setting::{OPTION_STRING, Setting, Variable};

pub(super) const MIB: u64 = 1 << 20;

/// A row of a program: its name and group; threads; seconds and peak MiB, each in full and with
/// `--quick`; title and description; arguments, and those with `--quick`.
macro_rules! row {
    ($name:literal, $group:ident, $threads:literal threads, $seconds:expr, $mib:expr, $title:literal,
     $description:literal, $program:literal $arguments:expr, quick $quick:expr $(, $settings:expr)?) => {
        SuiteRow {
            name: $name,
            group: Group::$group,
            title: $title,
            description: $description,
            seconds_are: None,
            program: Program::Workload { name: $program, arguments: &$arguments, quick: &$quick },
            threads: $threads,
            seconds: $seconds,
            peak_bytes: [$mib[0] * MIB, $mib[1] * MIB],
            setting: row!(@setting $($settings)?),
            nodes: 1,
        }
    };
    (@setting) => { Setting::Default };
    (@setting $variables:expr) => { Setting::Variables($variables) };
}
pub(super) use row;

/// Makes allocators that have such a setting return all unused memory after a second.
const SOON: &[Variable] = &[
    Variable {
        allocator: "mallard",
        variable: OPTION_STRING,
        value: "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0",
    },
    Variable {
        allocator: "jemalloc",
        variable: OPTION_STRING,
        value: "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0",
    },
    Variable {
        allocator: "mimalloc",
        variable: "MIMALLOC_PURGE_DELAY",
        value: "1000",
    },
    Variable {
        allocator: "mimalloc2",
        variable: "MIMALLOC_PURGE_DELAY",
        value: "1000",
    },
    // gperftools returns pages during frees, at this rate; 10 is the highest that its manual names.
    Variable {
        allocator: "gperftools",
        variable: "TCMALLOC_RELEASE_RATE",
        value: "10",
    },
];

#[rustfmt::skip] // A row is easier to read as a few long lines than as thirty short ones.
pub const ROWS: &[SuiteRow] = &[
    row!("same-8", Patterns, 1 threads, [0.6, 0.12], [4, 4], "one size, 8 bytes",
        "A ring of 64 blocks is allocated and freed, alternately forwards and backwards.",
        "same" ["size=8"], quick ["size=8", "count=200000"]),
    row!("same-64", Patterns, 1 threads, [0.6, 0.12], [4, 4], "one size, 64 bytes",
        "A ring of 64 blocks is allocated and freed, alternately forwards and backwards.",
        "same" ["size=64"], quick ["size=64", "count=200000"]),
    row!("same-512", Patterns, 1 threads, [0.6, 0.12], [4, 4], "one size, 512 bytes",
        "A ring of 64 blocks is allocated and freed, alternately forwards and backwards.",
        "same" ["size=512"], quick ["size=512", "count=200000"]),
    row!("same-4096", Patterns, 1 threads, [0.5, 0.1], [4, 4], "one size, 4 KiB",
        "A ring of 64 blocks is allocated and freed, alternately forwards and backwards.",
        "same" ["size=4096", "count=100000"], quick ["size=4096", "count=20000"]),
    row!("same-32768", Patterns, 1 threads, [0.5, 0.1], [6, 6], "one size, 32 KiB",
        "A ring of 64 blocks is allocated and freed, alternately forwards and backwards.",
        "same" ["size=32768", "count=20000"], quick ["size=32768", "count=4000"]),
    row!("mixed", Patterns, 1 threads, [0.8, 0.16], [16, 16], "mixed sizes, 8 bytes to 32 KiB",
        "A random block of a ring of 256 is replaced by one of another size at each step.",
        "mixed" [], quick ["count=3200000"]),
    row!("large", Patterns, 1 threads, [0.8, 0.16], [400, 300], "large buffers, 32 KiB to 64 MiB",
        "A random one of 16 buffers is replaced at each step, and every page of it is written to.",
        "large" [], quick ["count=20"]),
    row!("grow", Patterns, 1 threads, [0.6, 0.12], [40, 40], "vectors that grow by realloc",
        "A random one of 1,000 vectors is doubled at each step, up to 256 KiB, and then starts over.",
        "grow" ["mode=1"], quick ["mode=1", "count=400000"]),
    row!("grow-huge", Patterns, 1 threads, [0.4, 0.1], [160, 160], "a buffer that grows to 1 GiB",
        "A buffer is doubled from 1 MiB to 1 GiB; an eighth of what it gains is written to.",
        "grow" ["mode=2", "rounds=3"], quick ["mode=2", "rounds=1"]),
    row!("calloc", Patterns, 1 threads, [0.8, 0.16], [4, 4], "zeroed blocks, 16 bytes to 1 KiB",
        "A random block of a ring of 256 is replaced by a zeroed one, which is verified and then overwritten.",
        "calloc" [], quick ["count=2400000"]),
    row!("calloc-large", Patterns, 1 threads, [0.8, 0.16], [32, 32], "zeroed blocks, 64 KiB to 4 MiB",
        "A random block of a ring of 16 is replaced by a zeroed one, which is verified and then overwritten.",
        "calloc" ["min=65536", "max=4194304", "count=10000", "ring=16"],
        quick ["min=65536", "max=4194304", "count=2000", "ring=16"]),
    row!("aligned", Patterns, 1 threads, [0.6, 0.12], [24, 24], "aligned blocks",
        "A random block of a ring of 256 is replaced by one from posix_memalign, aligned to between 16 bytes and 64 KiB.",
        "aligned" ["count=4000000"], quick ["count=800000"]),
    row!("start", Patterns, 1 threads, [0.5, 0.05], [2, 2], "start and end of a process",
        "A trivial program is started and ended again and again; the memory figure is that of one such process.",
        "start" [], quick ["count=30"]),

    row!("containers", Patterns, 1 threads, [0.8, 0.16], [64, 64], "C++ containers",
        "Trees, hash tables, lists, vectors and a deque are filled, half emptied at random, filled again and destroyed.",
        "containers" [], quick ["rounds=1"]),
    row!("strings", Patterns, 1 threads, [0.8, 0.16], [64, 64], "C++ strings",
        "A text is split into std::strings, which are counted, sorted, joined, cut and replaced.",
        "strings" [], quick ["rounds=2"]),

    row!("larson-2", Threads, 2 threads, [1.0, 0.2], [4, 4], "a server, 2 threads",
        "Blocks in a thread's table are replaced at random; then a new thread takes the table over (Larson and Krishnan, ISMM 1998).",
        "larson" ["threads=2"], quick ["threads=2", "rounds=50"]),
    row!("larson-8", Threads, 8 threads, [1.0, 0.2], [16, 16], "a server, 8 threads",
        "Blocks in a thread's table are replaced at random; then a new thread takes the table over (Larson and Krishnan, ISMM 1998).",
        "larson" ["threads=8", "rounds=64"], quick ["threads=8", "rounds=13"]),
    row!("handoff", Threads, 2 threads, [0.7, 0.14], [24, 24], "a producer and a consumer",
        "One thread allocates batches of blocks, another frees them (Lever and Boreham, USENIX 2000).",
        "handoff" [], quick ["count=30000"]),
    row!("handoff-many", Threads, 8 threads, [0.7, 0.14], [24, 24], "4 producers and 4 consumers",
        "Some threads allocate batches of blocks, others free them (Lever and Boreham, USENIX 2000).",
        "handoff" ["producers=4", "consumers=4"], quick ["producers=4", "consumers=4", "count=30000"]),
    row!("handoff-pipeline", Threads, 4 threads, [1.0, 0.2], [48, 48], "a pipeline of 4 threads",
        "Each thread replaces every block of a batch with a new one, frees the old ones and passes the batch on.",
        "handoff" ["stages=4", "count=75000"], quick ["stages=4", "count=15000"]),
    row!("many", Threads, 64 threads, [1.0, 0.2], [140, 140], "64 threads",
        "Each thread replaces blocks of its table at random and exchanges one in eight with another thread.",
        "many" [], quick ["count=30000"]),
    row!("threads", Threads, 4 threads, [0.8, 0.16], [8, 8], "short-lived threads",
        "Threads allocate 300 blocks each, free most of them and end; the main thread frees the rest.",
        "threads" [], quick ["count=2400"]),
    row!("sharing-passive", Threads, 2 threads, [0.6, 0.12], [4, 4], "cache lines shared passively",
        "Threads free small blocks that the main thread allocated side by side, take others and write to them (Berger et al., ASPLOS 2000).",
        "sharing" ["mode=1"], quick ["mode=1", "rounds=4"]),
    row!("sharing-active", Threads, 2 threads, [0.6, 0.12], [4, 4], "cache lines shared actively",
        "Threads allocate small blocks, write to each many times and free it (Berger et al., ASPLOS 2000).",
        "sharing" ["mode=2"], quick ["mode=2", "rounds=4"]),
    SuiteRow {
        nodes: 2,
        ..row!("numa", Threads, 4 threads, [1.0, 0.2], [200, 200], "two threads on each NUMA node",
            "Threads pinned to their nodes replace blocks of their tables, fill them, and exchange one in eight with any other thread.",
            "numa" [], quick ["count=80000"])
    },

    row!("replace-fleet", Memory, 1 threads, [1.0, 0.3], [160, 160], "a large live set, object sizes of a server fleet",
        "One of 300,000 objects is replaced at each step, with published sizes and lifetimes (the program's head names the paper).",
        "replace" ["distribution=1"], quick ["distribution=1", "count=600000"]),
    row!("replace-fleet-4", Memory, 4 threads, [1.0, 0.3], [160, 160], "the same in 4 threads",
        "One of 300,000 objects in four threads is replaced at each step, with published sizes and lifetimes.",
        "replace" ["distribution=1", "threads=4"], quick ["distribution=1", "threads=4", "count=600000"]),
    row!("replace-items", Memory, 1 threads, [1.0, 0.3], [200, 200], "a large live set, items of a key-value cache",
        "One of 300,000 items is replaced at each step, the popular ones more often, with published sizes and popularities.",
        "replace" ["distribution=2"], quick ["distribution=2", "count=600000"]),
    row!("replace-items-4", Memory, 4 threads, [1.0, 0.3], [200, 200], "the same in 4 threads",
        "One of 300,000 items in four threads is replaced at each step, with published sizes and popularities.",
        "replace" ["distribution=2", "threads=4"], quick ["distribution=2", "threads=4", "count=600000"]),
    row!("burst", Memory, 1 threads, [0.8, 0.16], [70, 70], "a heap in waves",
        "The heap grows to 50 MiB and shrinks to a tenth of it in random order, over and over.",
        "burst" [], quick ["rounds=6"]),
    row!("fragment", Memory, 1 threads, [0.6, 0.2], [240, 240], "gaps between blocks that stay",
        "All blocks but every tenth are freed, and blocks of other sizes must find room; then the sizes are swapped.",
        "fragment" [], quick ["rounds=2"]),
    row!("scan", Memory, 1 threads, [0.6, 0.2], [70, 70], "a list that is walked",
        "A million small nodes are allocated and linked, and the list is walked many times.",
        "scan" [], quick ["walks=4"]),
    row!("idle", Memory, 4 threads, [4.6, 2.4], [520, 520], "a peak, then nothing",
        "Threads allocate 400 MiB, free nine tenths of it and sleep, while the RSS is sampled.",
        "idle" ["seconds=4"], quick ["seconds=2", "total=200"], SOON),

    row!("latency", Latency, 2 threads, [0.6, 0.12], [120, 120], "single calls",
        "Random blocks of 16 bytes to 256 KiB are replaced in 2 threads, one in four by hand-off; each call is timed.",
        "latency" [], quick ["count=120000"]),
    row!("latency-16", Latency, 16 threads, [0.6, 0.12], [300, 300], "single calls in 16 threads",
        "Random blocks of 16 bytes to 256 KiB are replaced in 16 threads, one in four by hand-off; each call is timed.",
        "latency" ["threads=16", "count=75000"], quick ["threads=16", "count=15000"]),
];
