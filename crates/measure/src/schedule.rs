//! In which order candidates take turns.
//!
//! A shared machine drifts over seconds and minutes. Where all runs of one candidate come before
//! all runs of the next, that drift looks like a difference between them; where they take turns it
//! falls on all alike. The order within a round is rotated, so that none always comes first or
//! always follows the same pause.

/// The turns of `candidates` over `rounds`, as pairs of round and candidate. Each candidate has
/// exactly one turn in every round; round `r` begins with candidate `r` (modulo their number).
pub fn turns(rounds: usize, candidates: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..candidates).map(move |turn| (round, (round + turn) % candidates))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_has_one_turn_a_round_and_leads_in_turn() {
        let all: Vec<_> = turns(4, 3).collect();
        let candidates: Vec<_> = all.iter().map(|(_, candidate)| *candidate).collect();
        assert_eq!(candidates, [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]);
        let rounds: Vec<_> = all.iter().map(|(round, _)| *round).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn nobody_has_no_turn() {
        assert_eq!(turns(5, 0).count(), 0);
        assert_eq!(turns(0, 5).count(), 0);
    }
}
