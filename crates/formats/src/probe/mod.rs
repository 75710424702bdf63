//! The memory that the probe and the lab share: for each process a segment of counters
//! ([`layout`]), and the [`chunks`] in which a process that is recorded writes its calls.

pub mod chunks;
pub mod layout;
