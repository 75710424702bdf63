//! What the lab builds from sources: the peers, and the Mallard that counts lock contention.

pub mod counting;
pub(crate) mod peers;
pub(crate) mod workshop;
