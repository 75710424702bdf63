//! How many runs a search takes.

use super::super::space::Knob;
use super::prune::{DOUBTFUL_OPTIONS_MAX, PRUNING_BLOCKS};
use super::{
    ALLOCATOR_BLOCKS, ALLOCATOR_ROUNDS, BLOCKS_PER_ROUND, CONFIRMED_BLOCKS_MAX,
    CONFIRMED_BLOCKS_MIN, CONFIRMED_SETTINGS_MAX, DRAWN_PER_BLOCK, NOISE_BLOCKS,
    SCREENED_PER_BLOCK,
};

/// The fewest runs from which [`defaults`](super::defaults) can tell anything.
pub const DEFAULTS_RUNS_MIN: usize = 2 * CONFIRMED_BLOCKS_MIN;

/// After so many rounds of all options together, few values are left.
const USUAL_ROUNDS: usize = 3;

/// The runs of a search that tries every value: the noise, the allocators, each value with the
/// default in every block, a few rounds of all options, the pruning, and the confirmation.
pub fn runs_of_all(bases: &[(String, Vec<Knob>)]) -> usize {
    let values = |base: &(String, Vec<Knob>)| -> usize {
        let knobs = base.1.iter();
        knobs.map(|knob| knob.values.len() - 1).sum()
    };
    let values = bases.iter().map(values).max().unwrap_or(0);
    let noise = 2 * NOISE_BLOCKS;
    let allocators = ALLOCATOR_ROUNDS * ALLOCATOR_BLOCKS * bases.len();
    let screening = values + values.div_ceil(SCREENED_PER_BLOCK);
    let racing = USUAL_ROUNDS * BLOCKS_PER_ROUND * (DRAWN_PER_BLOCK + 1);
    let pruning = PRUNING_BLOCKS * (DOUBTFUL_OPTIONS_MAX + 2);
    let confirmation = CONFIRMED_SETTINGS_MAX * CONFIRMED_BLOCKS_MAX;
    noise + allocators + screening + racing + pruning + confirmation
}
