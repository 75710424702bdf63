//! The plots of a report: [`chart`] decides what they show; [`lines`], [`bars`] and [`over_time`]
//! draw them.

pub mod bars;
pub mod chart;
pub mod lines;
pub mod marks;
pub mod over_time;
pub mod palette;
mod scale;
pub mod thin;
