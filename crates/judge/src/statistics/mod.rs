//! What a few paired measurements can say, and when they say nothing.
//!
//! The lab compares two programs in *blocks*: in each block both run once, close together. The
//! figure of a block is the logarithm of their ratio, so whatever slows both alike cancels. From
//! these few numbers [`paired`] estimates the ratio with an interval, and [`mod@holm`] judges
//! several comparisons together. [`signed_rank`] has the distribution behind both. [`unpaired`]
//! compares blocks of one day with those of another. [`combine`] takes means over rows of different
//! work, [`fisher`] compares counts of failures. [`spread`] has medians, and
//! [`shape`] says where a median misleads.
//!
//! The methods assume no normal distribution, which times on a shared machine do not have, only
//! that the differences are symmetric around their centre. They are exact for few blocks and use
//! no random numbers, so the same figures always give the same answer.

mod combined;
pub mod fisher;
pub mod holm;
mod order;
pub mod paired;
pub mod shape;
pub mod signed_rank;
pub mod spread;
pub mod unpaired;

pub use combined::combine;
pub use holm::holm;
pub use paired::{Comparison, Interval, LEVEL_MARGIN, Verdict, compare};
pub use spread::{Spread, median};

/// The share of sessions in which an interval may miss the truth.
pub const ALPHA: f64 = 0.05;

/// With fewer blocks no interval is worth its name: four give 87.5 % at best.
pub const BLOCKS_MIN: usize = 5;

/// The blocks that an interval of 95 % takes.
pub const FULL_BLOCKS: usize = 6;
