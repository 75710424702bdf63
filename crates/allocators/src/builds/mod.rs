//! What the lab builds from sources: the peers.

pub(crate) mod cargo;
pub(crate) mod peers;
pub(crate) mod workshop;
