//! Where the parts of a segment are, for readers outside the process.

use super::chunk::CHUNK;
use super::layout::{GROUP_CHUNKS, GroupTable};
use super::{COUNT, MAX_SEGMENTS, SEGMENTS, Segment};
use crate::sys::page::{LINE, PAGE};
use core::mem::offset_of;

/// Offsets and sizes, in bytes, and the number of segments that there can be.
pub struct Outline {
    pub max: u32,
    pub bytes: u32,
    pub heap_at: u32,
    pub tables_at: u32,
    pub chunks_at: u32,
    pub chunk: u32,
    pub page: u32,
    pub line: u32,
    pub group_chunks: u32,
    pub group_pages_at: u32,
    pub group_bytes: u32,
}

pub const OUTLINE: Outline = Outline {
    max: MAX_SEGMENTS as u32,
    bytes: size_of::<Segment>() as u32,
    heap_at: offset_of!(Segment, heap) as u32,
    tables_at: offset_of!(Segment, tables) as u32,
    chunks_at: offset_of!(Segment, chunks) as u32,
    chunk: CHUNK as u32,
    page: PAGE as u32,
    line: LINE as u32,
    group_chunks: GROUP_CHUNKS as u32,
    group_pages_at: offset_of!(GroupTable, pages) as u32,
    group_bytes: size_of::<GroupTable>() as u32,
};

/// The table of segments, and the word with their number.
pub const TABLES: [*const (); 2] = [(&raw const SEGMENTS).cast(), (&raw const COUNT).cast()];
