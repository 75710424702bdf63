//! Gates on figures that are zero, such as a number of errors: they have no ratio.

use super::gate::{Gate, Verdict};
use super::reference::SAVED_BLOCKS_MIN;
use crate::statistics::{ALPHA, Comparison, Interval};

/// With fewer blocks on a side, zeros say nothing.
const BLOCKS_MIN: usize = SAVED_BLOCKS_MIN;

/// What zeros say about a gate.
#[derive(Debug, Clone, PartialEq)]
pub enum Zeros {
    /// They are so few that the ratios of the other blocks decide.
    Few,
    /// All figures are zero, then and now.
    Same,
    /// The figure was zero and is not, or the other way round.
    Moved(Verdict),
    /// A figure is zero in some blocks only, or the blocks are too few.
    Unclear,
}

/// Compares the figures of the reference with those of the blocks.
pub fn of(gate: &Gate, then: &[f64], now: &[f64]) -> Zeros {
    let zeros = |figures: &[f64]| figures.iter().filter(|figure| **figure == 0.0).count();
    let (zero_then, zero_now) = (zeros(then), zeros(now));
    if 2 * zero_then <= then.len() && 2 * zero_now <= now.len() {
        return Zeros::Few;
    }
    if then.len() < BLOCKS_MIN || now.len() < BLOCKS_MIN {
        return Zeros::Unclear;
    }
    let (all_then, all_now) = (zero_then == then.len(), zero_now == now.len());
    let worse_if = |worse| {
        if worse {
            Verdict::Worse
        } else {
            Verdict::Within
        }
    };
    match (all_then, all_now) {
        (true, true) => Zeros::Same,
        (true, false) if zero_now == 0 => Zeros::Moved(worse_if(gate.rises)),
        (false, true) if zero_then == 0 => Zeros::Moved(worse_if(!gate.rises)),
        _ => Zeros::Unclear,
    }
}

/// The comparison of figures that are all zero.
pub fn no_change(blocks: usize) -> Comparison {
    Comparison {
        blocks,
        ratio: 1.0,
        range: (1.0, 1.0),
        interval: Some(Interval {
            low: 1.0,
            high: 1.0,
            confidence: 1.0 - ALPHA,
        }),
        p: 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_the_same_as_zero_and_less_than_anything() {
        let (rise, fall): (Gate, Gate) =
            ("errors>+5%".parse().unwrap(), "qps<-3%".parse().unwrap());
        let (none, some) = ([0.0; 8], [3.0; 8]);
        assert_eq!(of(&rise, &none, &none), Zeros::Same);
        assert_eq!(of(&rise, &none, &some), Zeros::Moved(Verdict::Worse));
        assert_eq!(of(&rise, &some, &none), Zeros::Moved(Verdict::Within));
        assert_eq!(of(&fall, &none, &some), Zeros::Moved(Verdict::Within));
        assert_eq!(of(&fall, &some, &none), Zeros::Moved(Verdict::Worse));
        // Some blocks, and few.
        let mut mixed = none;
        mixed[3] = 1.0;
        assert_eq!(of(&rise, &none, &mixed), Zeros::Unclear);
        assert_eq!(of(&rise, &none, &none[..3]), Zeros::Unclear);
        let mut once = some;
        once[3] = 0.0;
        assert_eq!(of(&rise, &some, &once), Zeros::Few);
    }
}
