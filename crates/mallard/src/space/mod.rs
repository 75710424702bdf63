//! Where addresses come from, and what is known about each page.
//!
//! `region` holds the reservations and, in front of each one's heap, the maps that say for every
//! page which class it belongs to and who keeps its record, and which page heap has which part.
//! `chunk` is the record of 2 MiB of it. `meta` gives memory to records, apart from all user
//! memory. `fallback` serves threads that must not wait. This floor uses `sys` and the size
//! classes; the page heap above decides which pages are used for what.

pub mod chunk;
pub mod fallback;
pub mod meta;
pub mod region;

pub use region::{HeapId, Region};
