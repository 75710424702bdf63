//! Whether live bytes grow all the time.

use super::model::Growth;
use super::thresholds::GROWTH_BYTES_MIN;

/// The line that live bytes grow on, of seconds and bytes.
pub fn growth(moments: &[(f64, f64)]) -> Option<Growth> {
    if moments.len() < 15 {
        return None;
    }
    let n = moments.len() as f64;
    let mean_x = moments.iter().map(|m| m.0).sum::<f64>() / n;
    let mean_y = moments.iter().map(|m| m.1).sum::<f64>() / n;
    let xx: f64 = moments.iter().map(|m| (m.0 - mean_x).powi(2)).sum();
    let yy: f64 = moments.iter().map(|m| (m.1 - mean_y).powi(2)).sum();
    let xy: f64 = moments
        .iter()
        .map(|m| (m.0 - mean_x) * (m.1 - mean_y))
        .sum();
    if xx == 0.0 || yy == 0.0 || xy <= 0.0 {
        return None;
    }
    let peak = moments.iter().map(|m| m.1).fold(0.0, f64::max);
    let length = moments[moments.len() - 1].0 - moments[0].0;
    let grown = xy / xx * length;
    (grown >= GROWTH_BYTES_MIN as f64).then(|| Growth {
        bytes_per_second: xy / xx,
        fit: xy * xy / (xx * yy),
        share: (grown / peak).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_a_line_and_not_a_step() {
        let of = |live: fn(i32) -> i32| {
            let moments = (10..100).map(|n| (f64::from(n) * 0.05, f64::from(live(n))));
            growth(&moments.collect::<Vec<_>>())
        };
        let line = of(|n| n * (1 << 20)).unwrap();
        assert!(line.fit > 0.99 && line.share > 0.8, "{line:?}");
        assert_eq!(of(|_| 50 << 20), None);
        let step = of(|n| if n < 20 { 1 << 20 } else { 90 << 20 }).unwrap();
        assert!(step.fit < 0.95, "{step:?}");
    }
}
