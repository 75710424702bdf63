//! The order in which candidates take turns.
//!
//! The speed of a shared machine drifts over seconds and minutes. If all runs of one candidate came
//! before all runs of the next, that drift would look like a difference between them; if they take
//! turns, it affects all alike. A run also affects the next one: a program that uses small pages
//! leaves the machine's memory fragmented. So the order is not merely rotated, because each
//! candidate would always follow the same one. Instead each follows all others equally often (E. J.
//! Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
//! 1949).

/// The turns of `candidates` over `rounds`, as pairs of round and candidate. Each candidate has
/// exactly one turn in every round. Over as many rounds as there are candidates, or twice as many
/// for an odd number, each takes every place, and follows every other, equally often.
pub fn turns(rounds: usize, candidates: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..candidates).map(move |turn| {
            // An odd number needs each order mirrored too.
            let mirrored = candidates % 2 == 1 && round % 2 == 1;
            let place = if mirrored {
                candidates - 1 - turn
            } else {
                turn
            };
            (round, (zigzag(place, candidates) + round) % candidates)
        })
    })
}

/// 0, n − 1, 1, n − 2, 2 and so on: the differences between neighbours are distinct modulo n.
fn zigzag(place: usize, n: usize) -> usize {
    match place % 2 {
        0 => place / 2,
        _ => n - place.div_ceil(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The order in each of the rounds.
    fn orders(rounds: usize, candidates: usize) -> Vec<Vec<usize>> {
        let all: Vec<_> = turns(rounds, candidates).collect();
        let of = |round| all.iter().filter(move |turn| turn.0 == round);
        (0..rounds)
            .map(|round| of(round).map(|turn| turn.1).collect())
            .collect()
    }

    #[test]
    fn every_candidate_has_one_turn_a_round() {
        assert_eq!(
            orders(4, 3),
            [[0, 2, 1], [2, 0, 1], [2, 1, 0], [1, 2, 0]].map(Vec::from)
        );
        let all: Vec<_> = turns(4, 3).map(|turn| turn.0).collect();
        assert_eq!(all, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        for order in orders(20, 9) {
            let mut sorted = order;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..9).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_candidate_follows_each_other_and_takes_each_place_equally_often() {
        for (n, rounds, times) in [(2, 2, 1), (4, 4, 1), (8, 8, 1), (3, 6, 2), (9, 18, 2)] {
            let (mut follows, mut stands) = (BTreeMap::new(), BTreeMap::new());
            for order in orders(rounds, n) {
                for pair in order.windows(2) {
                    *follows.entry((pair[0], pair[1])).or_insert(0) += 1;
                }
                for (place, candidate) in order.into_iter().enumerate() {
                    *stands.entry((place, candidate)).or_insert(0) += 1;
                }
            }
            assert_eq!(follows.len(), n * (n - 1), "{n}");
            assert!(follows.values().all(|&count| count == times), "{follows:?}");
            assert_eq!(stands.len(), n * n, "{n}");
            assert!(stands.values().all(|&count| count == times), "{stands:?}");
        }
    }

    #[test]
    fn without_candidates_there_are_no_turns() {
        assert_eq!(turns(5, 0).count(), 0);
        assert_eq!(turns(0, 5).count(), 0);
        assert_eq!(turns(3, 1).count(), 3);
    }
}
