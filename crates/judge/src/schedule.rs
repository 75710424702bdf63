//! The order in which candidates take turns.
//!
//! The speed of a shared machine drifts over seconds and minutes. If all runs of one candidate came
//! before all runs of the next, that drift would look like a difference between them; if they take
//! turns, it affects all alike. A run also affects the next one: a program that uses small pages
//! leaves the machine's memory fragmented. So the order is not merely rotated, because each
//! candidate would always follow the same one. Instead each follows all others equally often (E. J.
//! Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
//! 1949).
//!
//! A regular order has a period, and so have many disturbances. One that comes at every fourth run
//! meets the same one of two candidates for minutes. So where candidates run in many blocks, as in
//! a baseline, the order in each block is drawn ([`shuffled`]).

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

/// The order of some candidates in a block, drawn by its number, so that a session can be repeated.
/// Every second block has the order of the one before it mirrored: over two blocks each candidate
/// comes before each other once.
pub fn shuffled(block: usize, candidates: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates).collect();
    for place in (1..candidates).rev() {
        let number = draw((block / 2 * candidates + place) as u64);
        order.swap(place, (number % (place as u64 + 1)) as usize);
    }
    if !block.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// The random number with a number: the same in every session (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014).
pub fn draw(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
    fn drawn_orders_are_fair_and_have_no_period() {
        for n in [2, 3, 7] {
            for pair in 0..50 {
                let (order, mut mirrored) = (shuffled(2 * pair, n), shuffled(2 * pair + 1, n));
                mirrored.reverse();
                assert_eq!(order, mirrored);
                mirrored.sort_unstable();
                assert_eq!(mirrored, (0..n).collect::<Vec<_>>());
            }
        }
        // Of two candidates the first begins in half of the pairs; a disturbance at every p-th run
        // meets both about equally often.
        let runs: Vec<usize> = (0..500).flat_map(|block| shuffled(block, 2)).collect();
        for period in 2..20 {
            let met = runs.iter().step_by(period);
            let share = met.clone().sum::<usize>() as f64 / met.count() as f64;
            assert!((0.3..0.7).contains(&share), "every {period} runs: {share}");
        }
    }

    #[test]
    fn without_candidates_there_are_no_turns() {
        assert_eq!(turns(5, 0).count(), 0);
        assert_eq!(turns(0, 5).count(), 0);
        assert_eq!(turns(3, 1).count(), 3);
    }
}
