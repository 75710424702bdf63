//! The arithmetic that all forms share.

pub mod analysis;
pub mod failures;
pub mod known;
pub mod metrics;
pub mod stats;
pub mod suite;
