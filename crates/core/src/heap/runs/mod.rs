//! Where runs of pages come from: chunks, and what is free in them.
//!
//! - `allocation` takes runs and takes them back, with the help of `filler` (partly used chunks),
//!   `pool` (vacant chunks), `crossing` (free pages across the borders of chunks) and `begun`
//!   (chunks kept for the thread that began them).
//! - `in_place` lengthens and shortens runs, and `moves` remaps memory to a longer one.
//! - `rejoin` replaces memory that was moved, so that its mapping merges with its neighbours.
//!
//! All of it runs under the lock, except for the system calls of `moves`.

pub(in crate::heap) mod allocation;
pub(in crate::heap) mod begun;
pub(in crate::heap) mod crossing;
pub(in crate::heap) mod filler;
pub(in crate::heap) mod in_place;
pub(in crate::heap) mod moves;
pub(in crate::heap) mod pool;
pub(in crate::heap) mod rejoin;
