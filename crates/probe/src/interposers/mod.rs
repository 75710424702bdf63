//! The functions that the probe defines instead of the allocator's.

mod c;
mod cxx;
mod jemalloc;
