//! Blocks: allocating, freeing and resizing them through the calling thread's cache.

pub mod alloc;
pub mod free;
pub mod hardened;
pub mod object;
pub mod resize;
