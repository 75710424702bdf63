//! The tables of names, a file for each branch; those of the options are in `opt`, beside the
//! lookup that they have to themselves.

pub(super) mod arena;
pub(super) mod arenas;
pub(super) mod config;
pub(super) mod experimental;
pub(super) mod prof;
pub mod stats;
pub(super) mod tcache;
pub(super) mod thread;
