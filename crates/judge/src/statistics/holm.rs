//! Several comparisons judged together.
//!
//! Of twenty comparisons without any difference, one looks different by chance at 5 %. Holm's
//! procedure (1979) keeps the risk of *any* false alarm below the level, whatever the dependence
//! between the comparisons.

/// The p-values adjusted for being judged together, in the same order: each can be compared with
/// the level directly.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut highest = 0.0f64;
    for (place, index) in order.into_iter().enumerate() {
        let left = (p_values.len() - place) as f64;
        // One that a smaller p-value has blocked stays blocked.
        highest = highest.max((p_values[index] * left).min(1.0));
        adjusted[index] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_multiplied_by_the_number_of_all_and_the_order_stays() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (a, b) in adjusted.iter().zip(expected) {
            assert!((a - b).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }
}
