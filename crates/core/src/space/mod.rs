//! Where addresses come from, and what is recorded of each page.
//!
//! `segment` holds the address ranges and the maps in front of each one's heap, which record for
//! every page its size class and the address of its record, and for every part of the range its
//! page heap. Its file `chunk` is the record of 2 MiB of heap. `meta` provides memory for records,
//! apart from all user memory. `fallback` serves threads that must not wait, `zero_size` requests
//! for no bytes. This layer uses `sys` and the size classes; the page heap above it decides how
//! pages are used.

pub mod fallback;
pub mod meta;
pub mod segment;
pub mod zero_size;

pub use segment::{HeapId, Segment, chunk};
