//! The totals of a profile, how far they may be off, and how many frames have names.

use super::stack::Stacks;
use super::{Figures, View};
use crate::model::{Profile, Sample};

#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub total: i128,
    pub blocks: Option<i128>,
    /// How many blocks were sampled for these totals, by the probability of each to be.
    pub samples: Option<f64>,
    /// The standard error of the total, as a share of it; 0 if every block was recorded, none if
    /// the profile does not tell.
    pub error: Option<f64>,
    /// The share of frames with names, in stacks with figures; none without frames.
    pub named: Option<f64>,
}

impl Summary {
    pub fn of(profile: &Profile, view: View, figures: Figures) -> Summary {
        let blocks = figures.blocks.map(|place| profile.total(place));
        let is_exact = profile.period <= 1;
        let samples = match (figures.blocks, view) {
            _ if is_exact => blocks.map(|blocks| blocks as f64),
            // The probability of a sample goes by bytes, which lifetimes are not.
            (_, View::Lifetime) => None,
            (Some(blocks), _) => Some(samples(profile, size_figure(profile, figures), blocks)),
            (None, _) => samples_by_size(profile, figures.main),
        };
        let error = match samples {
            _ if is_exact => Some(0.0),
            Some(samples) if samples > 0.0 => Some(1.0 / samples.sqrt()),
            _ => None,
        };
        Summary {
            total: profile.total(figures.main),
            blocks,
            samples,
            error,
            named: named(profile, figures),
        }
    }
}

/// The figure that tells how large the blocks are. Waste and fragmentation belong to live blocks.
fn size_figure(profile: &Profile, figures: Figures) -> usize {
    let live = View::Live.figures(profile);
    match live {
        Ok(live) if live.blocks == figures.blocks => live.main,
        _ => figures.main,
    }
}

fn samples(profile: &Profile, bytes: usize, blocks: usize) -> f64 {
    let expected = |sample: &Sample| {
        let (blocks, bytes) = (sample.values[blocks] as f64, sample.values[bytes] as f64);
        if blocks <= 0.0 || bytes <= 0.0 {
            return 0.0;
        }
        blocks * -(-bytes / blocks / profile.period as f64).exp_m1()
    };
    profile.samples.iter().map(expected).sum()
}

/// The same for bytes whose blocks are not counted, such as those of the peak: the sizes are those
/// of all that the stack allocated.
fn samples_by_size(profile: &Profile, bytes: usize) -> Option<f64> {
    let ever = View::Allocs.figures(profile).ok()?;
    let blocks = ever.blocks?;
    let expected = |sample: &Sample| {
        let value = |of_type: usize| sample.values[of_type] as f64;
        if value(blocks) <= 0.0 || value(ever.main) <= 0.0 || value(bytes) <= 0.0 {
            return 0.0;
        }
        let size = value(ever.main) / value(blocks);
        value(bytes) / size * -(-size / profile.period as f64).exp_m1()
    };
    Some(profile.samples.iter().map(expected).sum())
}

/// The share of frames with names. Those of the allocator are no loss without one.
fn named(profile: &Profile, figures: Figures) -> Option<f64> {
    let (mut all, mut with_names) = (0, 0);
    let mut stacks = Stacks::new(profile);
    for sample in &profile.samples {
        if sample.values[figures.main] != 0 {
            let steps = stacks.steps(&sample.stack).all;
            all += steps.len();
            with_names += steps.iter().filter(|step| step.is_named).count();
        }
    }
    (all > 0).then(|| with_names as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Location, LocationIndex, SampleType};

    fn profile(period: u64, values: &[[i64; 2]]) -> Profile {
        Profile {
            types: vec![
                SampleType::new("inuse_objects", "count"),
                SampleType::new("inuse_space", "bytes"),
            ],
            samples: values
                .iter()
                .map(|values| Sample {
                    stack: [LocationIndex(0)].into(),
                    values: values.to_vec(),
                    labels: Vec::new(),
                })
                .collect(),
            locations: vec![Location::default()],
            period,
            ..Profile::default()
        }
    }

    fn summary(profile: &Profile) -> Summary {
        let figures = View::Live.figures(profile).unwrap();
        Summary::of(profile, View::Live, figures)
    }

    #[test]
    fn the_error_is_that_of_the_number_of_samples() {
        // Each block of 8 KiB at a period of 1 MiB stands for 128 and a half.
        let profile = profile(1 << 20, &[[12_850, 12_850 * 8192]]);
        let summary = summary(&profile);
        assert!(
            (summary.samples.unwrap() - 100.0).abs() < 0.5,
            "{summary:?}"
        );
        assert!((summary.error.unwrap() - 0.1).abs() < 0.001);
        assert_eq!(summary.named, Some(0.0));
    }

    #[test]
    fn bytes_without_blocks_have_the_error_of_the_sizes_that_were_allocated() {
        let mut profile = profile(1 << 20, &[[12_850, 12_850 * 8192]]);
        profile.types = vec![
            SampleType::new("alloc_objects", "count"),
            SampleType::new("alloc_space", "bytes"),
            SampleType::new("peak_space", "bytes"),
        ];
        profile.samples[0].values.push(12_850 * 8192 / 4);
        let figures = View::Peak.figures(&profile).unwrap();
        let summary = Summary::of(&profile, View::Peak, figures);
        assert!((summary.samples.unwrap() - 25.0).abs() < 0.5, "{summary:?}");
        assert!((summary.error.unwrap() - 0.2).abs() < 0.002, "{summary:?}");
    }

    #[test]
    fn a_profile_of_every_block_has_no_error() {
        let summary = summary(&profile(1, &[[10, 1000], [0, 0]]));
        assert_eq!((summary.total, summary.blocks), (1000, Some(10)));
        assert_eq!((summary.samples, summary.error), (Some(10.0), Some(0.0)));
    }

    #[test]
    fn an_empty_profile_has_no_error_to_tell() {
        let summary = summary(&profile(512, &[]));
        assert_eq!(
            (summary.total, summary.error, summary.named),
            (0, None, None)
        );
    }
}
