//! The set of page heaps: the first and all others by number (`heaps`), one for each NUMA node
//! (`nodes`), and one for each arena that the program makes (`manual`).

pub(in crate::heap) mod heaps;
pub(in crate::heap) mod manual;
pub mod nodes;
