//! Recordings of what a program allocates (`.mtrace`).
//!
//! A recording is a file of [`chunk`]s. Each chunk stands alone: it has its own length and
//! checksum, and what it holds is read without any other chunk. Most chunks hold the [`event`]s of
//! one thread as [`columns`], or those of several short ones ([`packed`]); the others describe the
//! recording, its processes and their memory ([`description`]). So a file that was cut anywhere is
//! read up to its last whole chunk.
//!
//! [`Writer`] writes the file and [`Reader`] reads it, both one chunk at a time. [`Recording`]
//! knows where the chunks of each thread lie, and brings the events of all threads into the order
//! of their stamps.
//!
//! [`summary`] tells what a recording holds. [`plan`] compiles it into what a replay executes, with
//! [`life`], which matches begin and end of blocks. [`cut`](mod@cut) makes a recording of a part,
//! [`import`](mod@import) of another tool's file.
//!
//! This crate knows no allocator and runs nothing. Every length, count and offset of a file is
//! checked before it is used: a file may come from anywhere.

pub mod cut;
pub mod event;
mod format;
mod hash;
pub mod import;
pub mod life;
pub mod plan;
mod recording;
pub mod summary;

pub use event::{Event, Kind};
pub use format::{Item, Reader, State, Writer};
pub use format::{chunk, columns, description, packed, varint};
pub use recording::{Merged, Recording, Thread};

use std::io;

/// The XXH3 (128 bits) of all that can be read: a recording's name for what is made of it.
pub fn digest(mut from: impl io::Read) -> io::Result<u128> {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(hash.digest128()),
            read => hash.update(&bytes[..read]),
        }
    }
}

/// The name that files of this format have.
pub const EXTENSION: &str = "mtrace";

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a recording (.mtrace)")]
    NotOne,
    #[error("it was written by a later version (format {0}, this one reads up to {VERSION})")]
    Later(u8),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Another tool's file that cannot be imported.
    #[error("{0}")]
    Foreign(String),
    #[error("line {line}: {problem}")]
    Line { line: u64, problem: String },
}

pub type Result<T> = std::result::Result<T, Error>;

/// The version of the format. A reader of version N reads all versions up to N.
pub const VERSION: u8 = 2;
/// The first bytes of a file; the version follows.
pub const MAGIC: [u8; 7] = *b"mtrace\0";
/// The length of what precedes the first chunk: [`MAGIC`], the version, and eight zeros.
pub const HEAD_BYTES: usize = 16;
