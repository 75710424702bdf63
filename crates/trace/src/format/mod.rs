//! The form of a recording's file, and what reads and writes it one chunk at a time.

pub mod chunk;
pub mod columns;
pub mod description;
pub mod packed;
mod reader;
pub mod varint;
mod writer;

pub use reader::{Item, Reader, State};
pub use writer::Writer;

/// Events of one thread in one chunk, where no recorder decides it.
pub(crate) const CHUNK_EVENTS: usize = 4096;
