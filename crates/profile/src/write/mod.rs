//! Writes profiles for other tools: pprof's format ([`pprof()`]) and collapsed stacks
//! ([`collapsed()`]).

mod collapsed;
mod pprof;

pub use collapsed::collapsed;
pub use pprof::{pprof, pprof_plain};
