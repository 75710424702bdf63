//! Rows that show what size does: of the heap, of the number of threads, of a block. They take long
//! and much memory, so they are a set of their own.

use super::workloads::{MIB, row};
use super::{Group, Program, SuiteRow};
use crate::workloads::setting::Setting;

#[rustfmt::skip] // As in `workloads`.
pub const ROWS: &[SuiteRow] = &[
    row!("live-256m", Scale, 1 threads, [4.0, 0.5], [330, 330], "0.25 GiB live, replaced at random",
        "Blocks of 16 bytes to 4 KiB, evenly distributed: one of 130,562 is replaced at each step. The time of a step should not depend on the heap's size.",
        "replace" ["distribution=3", "live=130562", "count=20000000"],
        quick ["distribution=3", "live=130562", "count=1000000"]),
    row!("live-1g", Scale, 1 threads, [7.0, 1.0], [1250, 1250], "1 GiB live, replaced at random",
        "The same with 522,247 blocks.",
        "replace" ["distribution=3", "live=522247", "count=20000000"],
        quick ["distribution=3", "live=522247", "count=1000000"]),
    row!("live-4g", Scale, 1 threads, [11.0, 3.0], [4900, 4900], "4 GiB live, replaced at random",
        "The same with 2,088,989 blocks.",
        "replace" ["distribution=3", "live=2088989", "count=20000000"],
        quick ["distribution=3", "live=2088989", "count=1000000"]),
    row!("live-8g", Scale, 1 threads, [15.0, 5.0], [9800, 9800], "8 GiB live, replaced at random",
        "The same with 4,177,979 blocks.",
        "replace" ["distribution=3", "live=4177979", "count=20000000"],
        quick ["distribution=3", "live=4177979", "count=1000000"]),

    row!("crowd-1", Scale, 1 threads, [1.0, 0.2], [8, 8], "10 million replacements in 1 thread",
        "Threads replace blocks of their tables at random and exchange one in eight with another thread; all together make 10 million steps.",
        "many" ["threads=1", "count=10000000"], quick ["threads=1", "count=2000000"]),
    row!("crowd-8", Scale, 8 threads, [1.0, 0.2], [32, 32], "10 million replacements in 8 threads",
        "The same in 8 threads.",
        "many" ["threads=8", "count=1250000"], quick ["threads=8", "count=250000"]),
    row!("crowd-64", Scale, 64 threads, [1.0, 0.2], [140, 140], "10 million replacements in 64 threads",
        "The same in 64 threads.",
        "many" ["threads=64", "count=156250"], quick ["threads=64", "count=31250"]),
    row!("crowd-512", Scale, 512 threads, [1.5, 0.4], [900, 900], "10 million replacements in 512 threads",
        "The same in 512 threads.",
        "many" ["threads=512", "count=19532"], quick ["threads=512", "count=3906"]),

    row!("sleepers-2000", Scale, 2000 threads, [0.6, 0.3], [180, 180], "2,000 threads that sleep between bursts",
        "Each thread allocates and frees 200 blocks, then all sleep. The end state is when all sleep: a few KiB in each thread are its stack.",
        "sleepers" ["bursts=8"], quick ["bursts=4"]),
    row!("brief-20000", Scale, 4 threads, [2.0, 0.4], [8, 8], "20,000 short threads",
        "Threads allocate 300 blocks each, free most of them and end; the main thread frees the rest.",
        "threads" ["count=20000"], quick ["count=4000"]),
    row!("grow-4g", Scale, 1 threads, [0.6, 0.6], [600, 600], "a buffer that grows to 4 GiB",
        "A buffer is doubled from 1 MiB to 4 GiB; an eighth of what it gains is written to.",
        "grow" ["mode=2", "rounds=1", "last=4096"], quick ["mode=2", "rounds=1", "last=4096"]),
    row!("starts-500", Scale, 1 threads, [0.7, 0.07], [2, 2], "500 starts of a process",
        "A trivial program is started and ended; the memory figure is that of one such process.",
        "start" ["count=500"], quick ["count=50"]),
    row!("manual-4000", Scale, 1 threads, [1.0, 0.3], [200, 200], "4,000 arenas of the program's own",
        "Arenas are created through jemalloc's interface, get 20 blocks each, and are destroyed. Allocators without that interface fail.",
        "manual" [], quick ["arenas=1000"]),
];
