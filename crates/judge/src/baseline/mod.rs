//! The rules of `mallard baseline`: when a change made something worse.
//!
//! A reference and a check are [`blocks`]. [`reference`] says when there are enough for a
//! reference, and how a check differs from it. A [`gate`] fails only where the whole interval of
//! the change is beyond its limit; [`zeros`] has the figures that have no ratio. [`looks`] says
//! when the blocks of a check are enough. [`rehearsal`] uses the measured blocks again, to say how
//! far checks can be trusted.

pub mod blocks;
pub mod gate;
pub mod looks;
pub mod reference;
pub mod rehearsal;
pub mod zeros;
