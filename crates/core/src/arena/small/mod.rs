//! Small blocks: regions of slabs.
//!
//! `bins` holds one bin for each class, and `bin` its slabs (`slab`) and its transfer cache
//! (`transfer_cache`). `traffic` decides whose blocks a thread should get from them; `returns`
//! gives blocks back to their slabs; `subrelease` returns memory of partly used slabs to the
//! system, sooner where they are `sparse`. `poison` tells AddressSanitizer which blocks are free.

pub(in crate::arena) mod bin;
pub(in crate::arena) mod bins;
pub mod poison;
pub(in crate::arena) mod returns;
pub(in crate::arena) mod slab;
mod sparse;
pub mod subrelease;
pub(in crate::arena) mod traffic;
pub(in crate::arena) mod transfer_cache;
