//! Checks of blocks that were measured before, to say how far checks can be trusted.
//!
//! One stretch of the blocks plays the save, another the check. Stretches stay in the order of
//! time, so they contain the machine's drift. Where nothing is changed, each failure is a false
//! alarm; a change that is planted into the subject's figures should be found. The decisions are
//! those of [`super::looks`], on the same rules as in a real check.

use super::blocks::{Block, figures};
use super::gate::{Gate, Verdict};
use super::looks::{self, Decision, Looks, worst};
use super::reference::{SAVED_BLOCKS_MIN, against, is_enough};
use crate::figures::Metric;
use crate::limit::Within;
use crate::schedule::draw;

/// A default plant is beyond its limit by this factor: 8 % for a limit of 5 %.
const BEYOND_FACTOR: f64 = 1.6;

/// The fewest blocks that a save and a check can be drawn from.
pub const fn blocks_min() -> usize {
    SAVED_BLOCKS_MIN + looks::most()
}

/// A change beyond each limit.
pub fn plants(gates: &[Gate]) -> Vec<Within> {
    let beyond = |gate: &Gate| Within {
        metric: gate.metric.clone(),
        change: BEYOND_FACTOR * if gate.rises { gate.limit } else { -gate.limit },
    };
    let plants = gates.iter().map(beyond);
    plants.filter(|plant| plant.change > -1.0).collect()
}

/// How many sessions ended with each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub within: usize,
    pub unclear: usize,
    pub worse: usize,
}

/// Saves and checks in so many sessions, with a change planted into the checks.
pub fn rehearse(
    gates: &[Gate],
    metrics: &[Metric],
    pool: &[Block],
    plant: Option<&Within>,
    sessions: usize,
) -> Tally {
    let mut tally = Tally::default();
    // Without a plant, any gate that fails is a false alarm.
    let concerns =
        |decision: &&Decision| plant.is_none_or(|plant| plant.metric == decision.gate.metric);
    for session in 0..sessions {
        let (then, now) = deal(pool, gates, session as u64);
        let now = now.map(|block| planted(block, plant));
        let decisions = check(gates, metrics, &then, now);
        *match worst(decisions.iter().filter(concerns)) {
            Verdict::Within => &mut tally.within,
            Verdict::Unclear => &mut tally.unclear,
            Verdict::Worse => &mut tally.worse,
        } += 1;
    }
    tally
}

/// A save and the blocks of a check: two stretches of the pool, which is taken as a ring.
fn deal<'a>(
    pool: &'a [Block],
    gates: &[Gate],
    session: u64,
) -> (Vec<Block>, impl Iterator<Item = Block> + use<'a>) {
    let at = |index: usize| pool[index % pool.len()].clone();
    let begin = draw(2 * session) as usize % pool.len();
    let room = pool.len() - looks::most();
    let then = saved(gates, (0..room).map(|index| at(begin + index)));
    let spare = room - then.len();
    let next = begin + then.len() + draw(2 * session + 1) as usize % (spare + 1);
    (then, (0..looks::most()).map(move |index| at(next + index)))
}

fn planted(mut block: Block, plant: Option<&Within>) -> Block {
    if let Some(plant) = plant
        && let Some(figure) = block.subject.get_mut(&plant.metric)
    {
        *figure *= 1.0 + plant.change;
    }
    block
}

/// The blocks that `save` keeps of what is measured.
pub fn saved(gates: &[Gate], blocks: impl Iterator<Item = Block>) -> Vec<Block> {
    let mut kept = Vec::new();
    for block in blocks {
        kept.push(block);
        if is_enough(&kept, gates) {
            break;
        }
    }
    kept
}

/// What `check` says of blocks, of which it takes as many as it needs.
pub fn check(
    gates: &[Gate],
    metrics: &[Metric],
    saved: &[Block],
    blocks: impl Iterator<Item = Block>,
) -> Vec<Decision> {
    let found = |blocks: &[Block], gate: &Gate, alpha: f64| against(saved, blocks, gate, alpha);
    let base = |_: &[Block], gate: &Gate| figures(saved, &gate.metric, false);
    let mut looks = Looks::new(gates, metrics, &found, &base);
    let mut taken = Vec::new();
    for block in blocks {
        taken.push(block);
        if looks.enough(&taken, false) {
            break;
        }
    }
    looks.decisions()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a server that varies by about one percent and drifts slowly.
    fn pool(blocks: u64) -> Vec<Block> {
        let noise = |number: u64| (draw(number) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        let block = |number: u64| {
            let drift = 1.0 + 0.2 * (number as f64 / 9.0).sin();
            let figures = |salt: u64, share: f64| {
                let p99 = 2.0 * drift * share * (1.0 + 0.03 * noise(1000 * salt + number));
                [("p99".to_owned(), p99)].into()
            };
            Block {
                subject: figures(1, 0.9),
                anchor: Some(figures(2, 1.0)),
            }
        };
        (0..blocks).map(block).collect()
    }

    #[test]
    fn a_planted_change_is_found_and_nothing_is_not() {
        let gates = ["p99>+5%".parse().unwrap()];
        let metric = Metric {
            name: "p99".to_owned(),
            unit: "ms".to_owned(),
            higher_is_better: false,
        };
        let pool = pool(60);
        let tally = |change: Option<f64>| {
            let plant = change.map(|change| Within {
                metric: "p99".to_owned(),
                change,
            });
            rehearse(
                &gates,
                std::slice::from_ref(&metric),
                &pool,
                plant.as_ref(),
                60,
            )
        };
        let same = tally(None);
        assert!(same.worse == 0 && same.within >= 57, "{same:?}");
        let changed = tally(Some(0.08));
        assert!(changed.worse >= 57, "{changed:?}");
    }

    #[test]
    fn the_save_and_the_check_of_a_session_share_no_block() {
        let gates = ["p99>+5%".parse().unwrap()];
        for blocks in [28, 31, 60] {
            let pool = pool(blocks);
            for session in 0..40 {
                let (then, now) = deal(&pool, &gates, session);
                let now: Vec<Block> = now.collect();
                assert!(then.len() >= SAVED_BLOCKS_MIN && now.len() == looks::most());
                assert!(
                    !now.iter().any(|block| then.contains(block)),
                    "session {session}"
                );
            }
        }
    }

    #[test]
    fn a_plant_is_beyond_each_limit() {
        let gates = ["p99>+5%".parse().unwrap(), "qps<-3%".parse().unwrap()];
        let changes: Vec<f64> = plants(&gates).iter().map(|plant| plant.change).collect();
        assert!((changes[0] - 0.08).abs() < 1e-12 && (changes[1] + 0.048).abs() < 1e-12);
    }
}
