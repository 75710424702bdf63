//! The memory that the probe shares with the lab, and the files behind it. The lab compiles
//! [`layout`] and [`chunks`] as well.

pub mod chunks;
pub(crate) mod file;
pub mod layout;
