//! What crosses a process: the memory that one process writes and another reads, the formats of
//! files, and the names that both sides have to spell alike.
//!
//! - [`page`] is the page of statistics, which `mallard top` and `mallard export` read, and the
//!   requests to a process.
//! - [`metrics`] has the names of metrics, and writes a page's figures as text.
//! - [`records`] are those of the heap profiler, with the root block that leads to them and to the
//!   page.
//! - [`heap`] is where the blocks themselves are.
//! - [`profile`] is what the profiler's files and their reader have in common.
//! - [`probe`] is the memory between the probe and the lab.
//! - [`event`] is what a recording consists of.
//! - [`variables`] are environment variables.
//!
//! Types whose fields have type parameters are read as plain numbers, and are written as atomics.
//! Nothing here runs while a program allocates.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod event;
pub mod heap;
pub mod metrics;
pub mod page;
pub mod probe;
pub mod profile;
pub mod records;
pub mod variables;

/// The word of the first eight bytes of something, as the machine reads it.
const fn mark(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}
