//! A profile without what its process had from the one that it was forked from.
//!
//! [`super::since`] compares two profiles sample by sample with their labels, and a value may
//! become negative. Here the figures at the fork are sums by call stack: they are taken off several
//! samples of a stack, none of which becomes negative, and waste is scaled to what is left.

use std::collections::HashMap;

use crate::model::{
    ALLOC_OBJECTS, ALLOC_SPACE, FRAG_SPACE, FREED_OBJECTS, INUSE_OBJECTS, INUSE_SPACE, LIFETIME,
    PEAK_SPACE, Profile, WASTE_SPACE,
};
use crate::process::live::{OfStack, Stacks};
use crate::view::View;

/// Takes off what the stacks had at the fork. A process that freed a block since, and allocated
/// another one at the same stack, has none more.
pub fn take_off(profile: &mut Profile, at_fork: &Stacks) {
    let mut left: Vec<Option<Vec<i64>>> = Vec::new();
    let mut by_stack = HashMap::new();
    let main = View::Live.figures(profile).ok().map(|figures| figures.main);
    let kinds: Vec<_> = profile.types.iter().map(|of| of.kind.clone()).collect();
    let addresses: Vec<u64> = profile.locations.iter().map(|it| it.address).collect();
    for sample in &mut profile.samples {
        let place = *by_stack.entry(sample.stack.clone()).or_insert_with(|| {
            let stack: Vec<u64> = (sample.stack.iter())
                .map(|index| addresses[index.0 as usize])
                .collect();
            let of_stack = at_fork.get(&stack);
            left.push(of_stack.map(|of| kinds.iter().map(|kind| figure(of, kind)).collect()));
            left.len() - 1
        });
        let Some(left) = &mut left[place] else {
            continue;
        };
        let live_before = main.map_or(0, |main| sample.values[main]);
        for (value, left) in sample.values.iter_mut().zip(left.iter_mut()) {
            let taken = (*value).min(*left).max(0);
            *value -= taken;
            *left -= taken;
        }
        // Waste and fragmentation are those of the live blocks that are left.
        if let Some(main) = main.filter(|_| live_before > 0) {
            let kept = sample.values[main] as f64 / live_before as f64;
            for (value, kind) in sample.values.iter_mut().zip(&kinds) {
                if matches!(&**kind, WASTE_SPACE | FRAG_SPACE) {
                    *value = (*value as f64 * kept).round() as i64;
                }
            }
        }
    }
    profile
        .samples
        .retain(|sample| sample.values.iter().any(|&value| value != 0));
}

/// What a stack had of a kind of figure.
fn figure(of: &OfStack, kind: &str) -> i64 {
    let figure = match kind {
        ALLOC_OBJECTS => of.ever[0],
        ALLOC_SPACE => of.ever[1],
        INUSE_OBJECTS => of.live[0],
        // What was there at the fork was there at the peak, but for what was freed before it.
        INUSE_SPACE | PEAK_SPACE => of.live[1],
        FREED_OBJECTS => of.freed[0],
        LIFETIME => of.freed[1],
        _ => 0,
    };
    i64::try_from(figure).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Location, LocationIndex, Sample, SampleType};

    #[test]
    fn what_was_there_at_the_fork_is_taken_off_each_stack_once() {
        let kinds = [ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE, "waste_space"];
        let sample = |stack: u32, values: [i64; 4]| Sample {
            stack: [LocationIndex(stack)].into(),
            values: values.to_vec(),
            labels: Vec::new(),
        };
        let mut profile = Profile {
            types: kinds.map(|kind| SampleType::new(kind, "bytes")).to_vec(),
            locations: [0x10, 0x20]
                .map(|address| Location {
                    address,
                    ..Location::default()
                })
                .to_vec(),
            samples: vec![
                sample(0, [500, 0, 0, 0]),
                sample(0, [0, 2, 200, 20]),
                sample(0, [0, 1, 100, 10]),
                sample(1, [70, 0, 0, 0]),
                sample(1, [0, 1, 70, 7]),
            ],
            ..Profile::default()
        };
        let at_fork = OfStack {
            live: [1, 150],
            ever: [2, 300],
            ..OfStack::default()
        };
        take_off(&mut profile, &Stacks::from([(vec![0x10], at_fork)]));
        let values: Vec<&[i64]> = (profile.samples.iter()).map(|it| &it.values[..]).collect();
        let expected: [&[i64]; 5] = [
            &[200, 0, 0, 0],
            &[0, 1, 50, 5],
            &[0, 1, 100, 10],
            &[70, 0, 0, 0],
            &[0, 1, 70, 7],
        ];
        assert_eq!(values, expected);
        let whole = OfStack {
            live: [1, 70],
            ever: [1, 70],
            ..OfStack::default()
        };
        take_off(&mut profile, &Stacks::from([(vec![0x20], whole)]));
        assert_eq!(profile.samples.len(), 3);
    }
}
