//! Medians, and how far measurements lie apart.

/// The median and the ends of a repeated measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Summarises the finite values; none if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Some(Spread {
            median: median_of_sorted(&values)?,
            min: *values.first()?,
            max: *values.last()?,
        })
    }

    /// The distance from the median to the value furthest from it.
    pub fn deviation(&self) -> f64 {
        (self.max - self.median).max(self.median - self.min)
    }

    /// [`Spread::deviation`] as a fraction of the median; zero if the median is zero.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            self.deviation() / self.median.abs()
        }
    }
}

/// The median of the finite values. For an even number, the mean of the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values.iter().copied()).map(|s| s.median)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = sorted[middle - 1];
    Some(lower + (upper - lower) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::draw;

    #[test]
    fn half_of_the_values_lie_on_each_side_of_the_median_and_all_within_the_spread() {
        for count in 1..30 {
            let mut values: Vec<f64> = (0..count).map(|n| (draw(n) % 1000) as f64).collect();
            let spread = Spread::of(values.iter().copied()).unwrap();
            let half = |side: fn(&f64, &f64) -> bool| {
                values.iter().filter(|v| side(v, &spread.median)).count() <= values.len() / 2
            };
            assert!(half(|v, m| v < m) && half(|v, m| v > m), "{values:?}");
            let within = |v: &f64| (v - spread.median).abs() <= spread.deviation();
            assert!(values.iter().all(within), "{values:?}");
            assert!(values.contains(&spread.min) && values.contains(&spread.max));
            values.reverse();
            assert_eq!(median(&values), Some(spread.median));
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_the_middle_of_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(
            median(&[f64::NAN, 1.0]),
            Some(1.0),
            "only finite values count"
        );
    }
}
