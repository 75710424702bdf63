//! Maps values to positions on an axis and chooses its ticks.
//!
//! Axes of time and memory start at zero, because a truncated axis makes small differences look
//! large. If the values span more than a factor of [`LINEAR_RATIO_MAX`], the small ones would be
//! invisible near zero, so the axis is logarithmic.

/// The title of an axis of time.
pub const SECONDS_TITLE: &str = "seconds";
/// The ratio of the largest to the smallest value above which an axis is logarithmic.
pub const LINEAR_RATIO_MAX: f64 = 20.0;

/// An axis: maps its values to 0 (start) … 1 (end).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    Linear { end: f64 },
    Log { start: f64, end: f64 },
}

impl Scale {
    /// An axis for all values that are positive and finite.
    pub fn fit(values: impl IntoIterator<Item = f64>) -> Scale {
        let (mut min, mut max) = (f64::INFINITY, 0.0f64);
        for v in values.into_iter().filter(|v| v.is_finite() && *v > 0.0) {
            min = min.min(v);
            max = max.max(v);
        }
        if max == 0.0 {
            return Scale::Linear { end: 1.0 };
        }
        if max / min > LINEAR_RATIO_MAX {
            // A margin keeps points off the frame.
            Scale::Log {
                start: min / 1.25,
                end: max * 1.25,
            }
        } else {
            Scale::Linear { end: max * 1.06 }
        }
    }

    pub fn is_log(self) -> bool {
        matches!(self, Scale::Log { .. })
    }

    /// The position of a value, from 0 to 1. Values beyond an end are clamped to it.
    pub fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear { end } => value / end,
            Scale::Log { start, end } => (value / start).ln() / (end / start).ln(),
        };
        if place.is_nan() {
            0.0
        } else {
            place.clamp(0.0, 1.0)
        }
    }

    /// Round values on the axis, about `wanted` of them, in order.
    pub fn ticks(self, wanted: usize) -> Vec<f64> {
        match self {
            Scale::Linear { end } => linear_ticks(end, wanted),
            Scale::Log { start, end } => log_ticks(start, end, wanted),
        }
    }
}

fn linear_ticks(end: f64, wanted: usize) -> Vec<f64> {
    let rough = end / wanted.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|m| m * magnitude)
        .into_iter()
        .find(|s| *s >= rough * 0.999);
    let step = step.unwrap_or(10.0 * magnitude);
    (0..)
        .map(|i| i as f64 * step)
        .take_while(|v| *v <= end)
        .collect()
}

/// Steps of 1, 2 and 5 for few decades; otherwise the decades, thinned out if there are many.
fn log_ticks(start: f64, end: f64, wanted: usize) -> Vec<f64> {
    let first = start.log10().floor() as i32;
    let last = end.log10().ceil() as i32;
    let steps = |mantissas: &[f64], every: usize| -> Vec<f64> {
        let decades = (first..=last).step_by(every);
        let all = decades.flat_map(|d| mantissas.iter().map(move |m| m * 10f64.powi(d)));
        all.filter(|v| (start..=end).contains(v)).collect()
    };
    let candidates = [
        steps(&[1.0, 2.0, 5.0], 1),
        steps(&[1.0, 3.0], 1),
        steps(&[1.0], 1),
        steps(&[1.0], 2),
        steps(&[1.0], 4),
    ];
    let fitting = candidates
        .iter()
        .find(|c| c.len() <= wanted + 2 && c.len() >= 2);
    fitting.unwrap_or(&candidates[0]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_keep_the_order_and_stay_on_the_axis(mut values in prop::collection::vec(1e-6..1e9f64, 1..20)) {
            let scale = Scale::fit(values.iter().copied());
            values.sort_by(f64::total_cmp);
            let places: Vec<f64> = values.iter().map(|v| scale.place(*v)).collect();
            prop_assert!(places.is_sorted(), "{scale:?} {places:?}");
            prop_assert!(places.iter().all(|p| (0.0..=1.0).contains(p)));
            prop_assert!(places.last().unwrap() > &0.5, "the largest value fills the axis: {places:?}");
        }

        #[test]
        fn an_axis_has_a_readable_number_of_ticks_in_order(a in 1e-6..1e6f64, factor in 1.0..1e6f64, wanted in 3usize..8) {
            let scale = Scale::fit([a, a * factor]);
            let ticks = scale.ticks(wanted);
            prop_assert!((2..=wanted + 3).contains(&ticks.len()), "{scale:?} {ticks:?}");
            prop_assert!(ticks.is_sorted_by(|a, b| a < b));
            prop_assert!(ticks.iter().all(|t| (0.0..=1.0).contains(&scale.place(*t))));
        }
    }

    #[test]
    fn the_axis_is_logarithmic_only_above_the_limit() {
        assert!(!Scale::fit([1.0, LINEAR_RATIO_MAX]).is_log());
        assert!(Scale::fit([1.0, LINEAR_RATIO_MAX + 1.0]).is_log());
        assert_eq!(Scale::fit([]), Scale::Linear { end: 1.0 });
        assert_eq!(Scale::fit([f64::NAN, 0.0]), Scale::Linear { end: 1.0 });
    }
}
