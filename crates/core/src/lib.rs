//! Mallard: a general-purpose memory allocator for Linux.
//!
//! ```text
//!  malloc(n)                                              free(p)
//!    │ size class of n                                      │ page of p → class
//!  cache    per thread and class a stack of pointers: no lock, no atomic, no touch of the block
//!    │ empty: take a batch                                  │ full: give back the older half
//!  upkeep   in passing or in the background: returns what lies idle in the layers below
//!    │                                                      │
//!  arena    per class a transfer cache of batches, then slabs, under one short lock
//!    │ no slab with room                                    │ slab became empty
//!  heap     runs of pages out of 2 MiB chunks; free pages decay: dirty, muzzy, clean
//!    │ no chunk with room                                   │ decay due
//!  space    one planned range of addresses, mapped in steps; maps over its pages; metadata apart
//!    │                                                      │
//!  sys      mmap, mprotect, madvise; locks; the thread's pointer
//! ```
//!
//! Each folder is one of these layers and uses only the layers below it; `class` (the table of size
//! classes) serves all of them. `prof`, above the caches, is the heap profiler, `report` tells
//! misuses, and `guard` has the guarded blocks. On top are `api`, the Rust functions that every
//! front end uses; `conf`, the options; `stats`; `fork`; and `background`, the background thread.
//! Above those are `ctl`, the tree of names through which programs read and control the allocator,
//! and `stats_print`, the full statistics report. (The crate `mallard-http` serves all that by a
//! socket.) A test enforces this order, and one inside the folders (`tests/layers`).
//!
//! # `malloc(n)`
//!
//! 1. `api` looks up the size class of `n` in a table of `class`. Requests above 256 KiB go
//!    straight to step 5.
//! 2. `cache` pops the block on top of the thread's stack of that class. Nearly every call ends
//!    here.
//! 3. The stack is empty: a slow event. The thread marks itself as inside, against forks, lets the
//!    stack grow if its use shows that this helps, and asks its arena for a batch.
//! 4. `arena` takes the batch under the bin's lock: from the transfer cache, or else from the
//!    fullest slabs with a free region.
//! 5. If there is none, `heap` provides a run of pages: for one or more new slabs or, above 14 KiB,
//!    for the block itself. A partly used chunk with room comes first, then a vacant one.
//! 6. If there is none, `space` maps the next step of a segment by a call of `sys`. If the system
//!    refuses, `api` empties the thread's cache and the transfer caches and tries once more. Then
//!    it returns null.
//!
//! # `free(p)`
//!
//! 1. `api` reads one byte of the page map, which says on which stack the block belongs. A free
//!    with a size computes the stack from that instead.
//! 2. `cache` pushes the pointer onto the stack, without touching the block. Nearly every call ends
//!    here.
//! 3. The stack is full: a slow event. It grows if its use shows that this helps, or else the cache
//!    flushes its older half, or all of it, as a batch.
//! 4. `arena` puts the batch into the transfer cache of a bin: that of the arena that it came from,
//!    or of the thread's own.
//! 5. What does not fit there goes back to its slabs, or as a run to `heap`. A slab that became
//!    empty stays as its bin's spare; if the bin has one, its pages go to `heap`, too.
//! 6. `heap` marks the pages of the run as dirty. They return to the system when they have decayed,
//!    by the background thread, or else at the slow events of the program's threads.
//!
//! # Terms
//!
//! A term that only one module uses is explained there.
//!
//! Blocks and classes:
//!
//! - **Size class**, or class: a block size; each request is rounded up to one (`class`).
//! - **Slab**: a run of pages cut into equal blocks, its *regions*, of one class up to 14 KiB.
//! - **Series**: adjacent slabs that were made together.
//! - **Large block**: a run of pages that is one block; caches can keep those up to 256 KiB.
//! - **Standalone block**: a large block of 128 MiB or more, or with such an alignment, that has a
//!   mapping and a segment of its own.
//!
//! Caches:
//!
//! - **Thread cache**, or cache: a thread's stacks.
//! - **Stack**: an array of pointers to free blocks of one class; its *room* is how many fit.
//! - **Slow event**: a call that finds its stack empty or full.
//! - **Fill, flush, batch**: blocks go from an arena to a stack, or back, many under one lock.
//! - **GC pass**: every 16 slow events or so, a cache returns what lies idle on a few of its
//!   stacks.
//! - **Low mark**: a height of a stack. The first pop that reaches it takes the slow path: it shows
//!   that the blocks below are needed.
//! - **Tick**: upkeep at the end of a GC pass, which includes decay if no background thread runs it
//!   (`upkeep`).
//! - **Pending work**: work left for a thread that has just got memory and holds no lock
//!   (`sys::pending`).
//! - **Busy mark**: raised while a thread is inside the allocator, so that a fork waits for it
//!   (`sys::gate`).
//! - **Peek**: a brief lock-free read of another thread's stack, while its busy mark is down.
//!
//! Arenas:
//!
//! - **Arena**: what a group of threads fill from and flush to: bins, above a page heap. Threads
//!   are spread over *automatic* arenas; the program makes, resets and destroys *manual* ones.
//! - **Bin**: a class's transfer cache and slabs in one arena, under one lock.
//! - **Transfer cache**: pointers to blocks on their way from one thread cache to another.
//! - **Spare**: an empty slab that its bin keeps.
//!
//! Page heap:
//!
//! - **Page heap**: hands out runs of pages; one for each NUMA node and each manual arena.
//! - **Run**: adjacent pages in use together, as a slab or a large block.
//! - **Chunk**: 2 MiB of a segment, at a multiple of that: what a huge page covers.
//! - **Vacant chunk**: a chunk of which no page is in use.
//! - **Begun chunk**: a chunk that has just got its first run; kept for its thread for a while.
//! - **Filler**: the partly used chunks, filed by how full they are and by their longest free run.
//! - **Pool**: the vacant chunks, and the addresses for more.
//! - **Dirty, muzzy, clean**: free pages with old contents; that the system may take at any time;
//!   without memory.
//! - **Decay, purge**: free pages become due over time, and their memory is returned or offered to
//!   the system.
//! - **Surplus**: free memory of a heap that is being torn down.
//! - **Meter**: what a page heap learns of the cost of memory that goes back and is taken again.
//! - **Closed page, fence**: a page whose touch is a fault, as nobody has it; and one that is kept
//!   so behind a run (`heap::fence`).
//! - **Border**: where a mapping ends inside the heap, as memory was moved, advised or unmapped.
//!
//! Addresses:
//!
//! - **Segment**: a range of addresses that is planned for a heap and the maps over its pages, and
//!   mapped in steps; extent hooks provide segments of their own.
//! - **Slice**: 64 chunks of a segment, owned by one page heap.
//! - **Page map**: says of each page which class and which slab or large block it belongs to.
//! - **Record**, or metadata: what the allocator knows of a slab, a chunk, a cache; apart from
//!   blocks.
//!
//! Profiler:
//!
//! - **Sample, site**: a block that the heap profiler follows, and the call stack of such blocks.
//!
//! Reports:
//!
//! - **Call site**: the call stack of a request or a free; those that are noted in blocks have a
//!   number (`prof::callers`).
//!
//! Misuse:
//!
//! - **Hardened block**: a block with a record beside it, the *word*, which says that it is in use
//!   and how long it is; its memory is its *place*, and between both lies *slack*.
//! - **Ring**: where a thread's freed blocks wait in a hardened process.
//! - **Guarded block**: a block between pages without access, of which there are a few.
//! - **Slot**: the pages for one guarded block at a time; a *finding* is a misuse that it showed.
//!
//! # Use
//!
//! As a Rust program's allocator:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: mallard_core::Mallard = mallard_core::Mallard;
//!
//! let numbers: Vec<u32> = (0..1000).collect();
//! assert_eq!(numbers[999], 999);
//! ```
//!
//! [`metrics`] returns figures of the process, for its own use or for Prometheus.
//!
//! The library depends only on `libc`, never allocates through another allocator, prints nothing
//! unless asked, and preserves `errno`. It runs on Linux, on x86-64 and AArch64, with glibc and
//! musl.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    loom,
    allow(dead_code, reason = "the models use a part of each module")
)]

/// Chooses between items. Its name is the one by which rustfmt finds the modules in it.
///
/// With `--cfg loom`, the crate consists of the modules that hold a protocol, and of their models.
macro_rules! cfg_if {
    (if #[cfg($if:meta)] { $($item:item)* } $(else { $($other:item)* })?) => {
        $(#[cfg($if)] $item)*
        $($(#[cfg(not($if))] $other)*)?
    };
}

// First, for its macro `asked`.
#[macro_use]
pub mod sys;

mod guard;
mod prof;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod api;
        mod arena;
        mod background;
        mod cache;
        mod class;
        pub mod conf;
        pub mod ctl;
        mod fork;
        mod hardened;
        mod heap;
        mod report;
        mod space;
        pub mod stats;
        pub mod stats_print;
        #[cfg(test)]
        mod testing;
        mod upkeep;

        pub use api::global::Mallard;
        pub use api::metrics::{ClassMetrics, Metrics, metrics};
        pub use mallard_formats::metrics::Format as MetricsFormat;
    } else {
        // The modules that hold a protocol are all that there is of these layers.
        mod arena {
            mod count;
        }
        mod cache {
            mod countdown;
            mod room;
            mod stack;
        }
        mod class {
            mod hidden {
                mod saved;
            }
            mod late_values;
        }
        mod space {
            mod segment {
                mod fast;
                mod words;
            }
        }
    }
}
