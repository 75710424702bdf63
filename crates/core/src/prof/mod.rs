//! The heap profiler: samples allocations, and knows which call stacks hold the memory.
//!
//! - `sampler` decides which blocks are sampled, and takes samples on and off;
//! - `gap` draws the distances between samples, and says what a sample stands for;
//! - `samples` has the sampled blocks, `sites` the call stacks with their counters;
//! - `callers` numbers the call sites of requests, for those that note one in each block;
//! - `capture` takes the call stack of a thread, by the unwinder of `unwind`;
//! - `history` keeps single samples: the last ones, and a log; and the names of threads;
//! - `by_class` counts samples by size class, `hooks` calls functions of the program;
//! - `root` leads readers outside the process to the sites;
//! - `dump` writes profiles, as jemalloc's text or as pprof's protocol buffer.
//!
//! While sampling is off, no path knows of it. Switching it on hides the stacks of requests
//! ([`class::hidden`](crate::class::hidden)), so that `malloc` takes an entry that counts bytes;
//! the other paths that give out blocks ask [`is_counting`]. A thread counts down the bytes of its
//! requests. When none are left, the block that it got is sampled ([`spend`]): the page map files
//! the page where it begins under no class, so that its free takes the slow path, which finds out
//! by [`filed`]. Frees of blocks that begin in other pages are as they were.
//!
//! Nothing here holds a lock while a stack is captured or a file is written, and functions of
//! the program (`hooks`) run outside.

pub mod callers;
pub mod unwind;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod by_class;
        pub mod capture;
        pub mod dump;
        pub mod gap;
        pub mod history;
        pub mod hooks;
        mod root;
        mod sampler;
        pub mod samples;
        pub mod sites;
        mod sort;

        pub use gap::lg_sample;
        pub use sampler::*;
    }
}
