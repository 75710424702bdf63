//! The functions that the probe defines in the place of the allocator's.

mod c;
mod cxx;
mod jemalloc;
