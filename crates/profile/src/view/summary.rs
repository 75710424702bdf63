//! The totals of a profile, how far they may be off, and how many frames have names.

use super::stack::Stacks;
use super::{SampleTypes, View};
use crate::model::{Profile, Sample};

#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub total: i128,
    pub blocks: Option<i128>,
    /// How many blocks were sampled for these totals, by the probability of each to be.
    pub samples: Option<f64>,
    /// The standard error of the total, as a share of it; 0 if every block was recorded, none if
    /// the profile does not say.
    pub error: Option<f64>,
    /// The share of frames with names, in stacks with figures; none without frames.
    pub named: Option<f64>,
}

impl Summary {
    pub fn of(profile: &Profile, view: View, figures: SampleTypes) -> Summary {
        let blocks = figures.blocks.map(|place| profile.total(place));
        let total = profile.total(figures.main);
        let is_exact = profile.period <= 1;
        let sampled = match (figures.blocks, view) {
            // The probability of a sample goes by bytes, which lifetimes are not.
            (_, View::Lifetime) => None,
            (Some(blocks), _) => Some(sampled(profile, size_figure(profile, figures), blocks)),
            (None, _) => sampled_by_size(profile, figures.main),
        };
        let samples = sampled
            .as_ref()
            .map(|of| of.iter().map(|of| of.samples).sum());
        let (samples, error) = match samples {
            _ if is_exact => (blocks.map(|blocks| blocks as f64), Some(0.0)),
            Some(samples) if samples > 0.0 => {
                let sampled = sampled.iter().flatten();
                (Some(samples), Some(error(profile, figures, sampled, total)))
            }
            samples => (samples, None),
        };
        Summary {
            total,
            blocks,
            samples,
            error,
            named: named(profile, figures),
        }
    }
}

/// How many blocks of a stack were sampled, by the probability of each to be.
#[derive(Debug, Clone, Copy, Default)]
struct Sampled {
    samples: f64,
    probability: f64,
}

impl Sampled {
    fn of(profile: &Profile, blocks: f64, size: f64) -> Sampled {
        let probability = -(-size / profile.period as f64).exp_m1();
        Sampled {
            samples: blocks * probability,
            probability,
        }
    }
}

/// The standard error of the total as a share of it. A block that is sampled with probability p
/// stands for 1/p of its kind: it adds (1 - p)/p² of its size's square to the variance, and nothing
/// if it is sampled for certain.
fn error<'a>(
    profile: &Profile,
    figures: SampleTypes,
    sampled: impl Iterator<Item = &'a Sampled>,
    total: i128,
) -> f64 {
    let of_stack = |(sample, of): (&Sample, &Sampled)| match of.samples {
        samples if samples > 0.0 => {
            let value = sample.values[figures.main] as f64;
            (1.0 - of.probability) * value * value / samples
        }
        _ => 0.0,
    };
    let variance: f64 = profile.samples.iter().zip(sampled).map(of_stack).sum();
    variance.sqrt() / (total.unsigned_abs().max(1) as f64)
}

/// The figure that shows how large the blocks are. Waste and fragmentation belong to live blocks.
fn size_figure(profile: &Profile, figures: SampleTypes) -> usize {
    let live = View::Live.figures(profile);
    match live {
        Ok(live) if live.blocks == figures.blocks => live.main,
        _ => figures.main,
    }
}

fn sampled(profile: &Profile, bytes: usize, blocks: usize) -> Vec<Sampled> {
    let of_stack = |sample: &Sample| {
        let (blocks, bytes) = (sample.values[blocks] as f64, sample.values[bytes] as f64);
        if blocks <= 0.0 || bytes <= 0.0 {
            return Sampled::default();
        }
        Sampled::of(profile, blocks, bytes / blocks)
    };
    profile.samples.iter().map(of_stack).collect()
}

/// The same for bytes whose blocks are not counted, such as those of the peak: the sizes are those
/// of all that the stack allocated.
fn sampled_by_size(profile: &Profile, bytes: usize) -> Option<Vec<Sampled>> {
    let ever = View::Allocs.figures(profile).ok()?;
    let blocks = ever.blocks?;
    let of_stack = |sample: &Sample| {
        let value = |of_type: usize| sample.values[of_type] as f64;
        if value(blocks) <= 0.0 || value(ever.main) <= 0.0 || value(bytes) <= 0.0 {
            return Sampled::default();
        }
        let size = value(ever.main) / value(blocks);
        Sampled::of(profile, value(bytes) / size, size)
    };
    Some(profile.samples.iter().map(of_stack).collect())
}

/// The share of frames with names. Those of the allocator are no loss without one.
fn named(profile: &Profile, figures: SampleTypes) -> Option<f64> {
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
    fn blocks_that_are_sampled_for_certain_add_no_error() {
        let four = [4, 4 << 30];
        let large = summary(&profile(512 << 10, &[four]));
        assert!((large.samples.unwrap() - 4.0).abs() < 0.001, "{large:?}");
        assert!(large.error.unwrap() < 1e-6, "{large:?}");
        // A hundred samples of 800 MiB beside them are off by 80 MiB, of 4.78 GiB in all.
        let small = [100 << 10, 800 << 20];
        let both = summary(&profile(8 << 20, &[four, small]));
        assert!((both.samples.unwrap() - 104.0).abs() < 0.5, "{both:?}");
        assert!(
            (both.error.unwrap() - 80.0 / 4896.0).abs() < 0.0005,
            "{both:?}"
        );
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
