//! The running processes on Mallard, for `top`, `export` and `profile`.
//!
//! A [`row`] is what is shown of one process, and [`figures`] are written there in few characters.
//! A [`request`] asks a process to sample, to stop that, or to return its free memory.

pub mod figures;
pub mod request;
pub mod row;
