//! Long series, thinned to what a picture can show.

/// The most points of a series in a page.
pub const SERIES_POINTS_MAX: usize = 2000;

/// At most `most` of the points, with the shape that the whole has: the first, the last, and of
/// each stretch between them the point that makes the largest triangle with the point before and
/// the middle of the next stretch (largest triangle three buckets).
pub fn largest_triangles(points: &[(f64, u64)], most: usize) -> Vec<(f64, u64)> {
    if points.len() <= most || most < 3 {
        return points.to_vec();
    }
    let inner = points.len() - 2;
    // The bounds of stretch `index` of the points between the first and the last.
    let bound = |index: usize| 1 + index * inner / (most - 2);
    let mut chosen = vec![points[0]];
    for stretch in 0..most - 2 {
        let next = &points[bound(stretch + 1)..bound(stretch + 2).min(points.len())];
        let count = next.len().max(1) as f64;
        let middle = (
            next.iter().map(|p| p.0).sum::<f64>() / count,
            next.iter().map(|p| p.1 as f64).sum::<f64>() / count,
        );
        let before = chosen[chosen.len() - 1];
        let area = |p: &&(f64, u64)| {
            let (ax, ay) = (before.0 - middle.0, before.1 as f64 - middle.1);
            (ax * (p.1 as f64 - before.1 as f64) - (before.0 - p.0) * ay).abs()
        };
        let own = &points[bound(stretch)..bound(stretch + 1)];
        if let Some(best) = own.iter().max_by(|a, b| area(a).total_cmp(&area(b))) {
            chosen.push(*best);
        }
    }
    chosen.push(points[points.len() - 1]);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_series_keeps_its_ends_and_its_peak() {
        let mut points: Vec<(f64, u64)> = (0..100_000).map(|i| (f64::from(i), 1000)).collect();
        points[54_321].1 = 9_000_000;
        let thin = largest_triangles(&points, SERIES_POINTS_MAX);
        assert_eq!(thin.len(), SERIES_POINTS_MAX);
        assert_eq!(
            (thin[0], thin[SERIES_POINTS_MAX - 1]),
            (points[0], points[99_999])
        );
        assert!(thin.contains(&points[54_321]), "the peak is lost");
        assert!(thin.windows(2).all(|two| two[0].0 < two[1].0));
        assert_eq!(
            largest_triangles(&points[..10], SERIES_POINTS_MAX),
            points[..10]
        );
    }
}
