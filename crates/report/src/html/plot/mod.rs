//! The plots of a report: [`chart`] decides what they show; [`lines`], [`bars`] and [`curves`]
//! draw them.

pub mod bars;
pub mod chart;
pub mod curves;
pub mod lines;
pub mod marks;
pub mod palette;
mod scale;
pub mod thinning;
