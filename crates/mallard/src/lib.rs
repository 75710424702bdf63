//! Mallard: a general-purpose memory allocator for Linux.
//!
//! ```text
//!  malloc(n)                                              free(p)
//!    │ size class of n                                      │ page of p → class
//!  cache    per thread and class a stack of pointers: no lock, no atomic, no touch of the block
//!    │ empty: take a batch                                  │ full: give back the older half
//!  arena    per class a transfer store of batches, then slabs, under one short lock
//!    │ no slab with room                                    │ slab became empty
//!  heap     runs of pages out of 2 MiB chunks; free pages decay: dirty, muzzy, clean
//!    │ no chunk with room                                   │ decay due
//!  space    one planned range of addresses, mapped in steps; maps over its pages; metadata apart
//!    │                                                      │
//!  sys      mmap, mprotect, madvise; locks; the thread's pointer
//! ```
//!
//! Each folder is one of these layers and uses only the layers below it; `class` (the table of size
//! classes) serves all of them. On top are `api`, the Rust functions that every front end uses;
//! `conf`, the options; `stats`; `fork`; and `background`, the background thread. Above those are
//! `ctl`, the tree of names through which programs read and control the allocator, and `report`,
//! the full statistics report. A test enforces this order (`tests/layers.rs`).
//!
//! As a Rust program's allocator:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: mallard::Mallard = mallard::Mallard;
//!
//! let numbers: Vec<u32> = (0..1000).collect();
//! assert_eq!(numbers[999], 999);
//! ```
//!
//! The library depends only on `libc`, never allocates through another allocator, prints nothing
//! unless asked, and preserves `errno`. It runs on x86-64 Linux with glibc.

#![cfg_attr(not(test), no_std)]

#[cfg(not(loom))]
pub mod api;
#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod background;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod class;
#[cfg(not(loom))]
pub mod conf;
#[cfg(not(loom))]
pub mod ctl;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
pub mod report;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
pub mod stats;
pub mod sys;
#[cfg(all(test, not(loom)))]
mod testing;

#[cfg(not(loom))]
pub use api::global::Mallard;
