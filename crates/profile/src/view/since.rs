//! What has changed from one profile of a process to the next.

use std::collections::HashMap;

use crate::model::{LocationIndex, MappingIndex, Profile, Sample};

/// The later profile less the earlier one, sample by sample; a value may be less than nothing.
pub fn since(before: &Profile, after: Profile) -> Profile {
    let mut result = after;
    let column = |kind: &_| before.types.iter().position(|of| of == kind);
    let columns: Vec<Option<usize>> = result.types.iter().map(column).collect();
    let mut places = Places::of(&result);
    for sample in &before.samples {
        let values = columns
            .iter()
            .map(|&column| column.map_or(0, |column| sample.values[column]));
        let stack: Vec<LocationIndex> = (sample.stack.iter())
            .map(|&index| places.location(&mut result, before, index))
            .collect();
        let known = places.samples.entry(stack.clone()).or_default();
        let same = known
            .iter()
            .copied()
            .find(|&place| result.samples[place].labels == sample.labels);
        if let Some(place) = same {
            let after = result.samples[place].values.iter_mut();
            after
                .zip(values)
                .for_each(|(after, before)| *after = after.saturating_sub(before));
        } else {
            known.push(result.samples.len());
            result.samples.push(Sample {
                stack: stack.into(),
                values: values.map(i64::saturating_neg).collect(),
                labels: sample.labels.clone(),
            });
        }
    }
    result
        .samples
        .retain(|sample| sample.values.iter().any(|&value| value != 0));
    result.duration_nanos = result.time_nanos.saturating_sub(before.time_nanos).max(0);
    result
}

/// Where the later profile has what.
struct Places {
    locations: HashMap<u64, LocationIndex>,
    samples: HashMap<Vec<LocationIndex>, Vec<usize>>,
}

impl Places {
    fn of(profile: &Profile) -> Places {
        let mut places = Places {
            locations: HashMap::new(),
            samples: HashMap::new(),
        };
        for (index, location) in profile.locations.iter().enumerate() {
            places
                .locations
                .insert(location.address, LocationIndex(index as u32));
        }
        for (index, sample) in profile.samples.iter().enumerate() {
            // The same address may be there twice: the last one stands for both.
            let stack = sample.stack.iter().map(|&of| {
                let address = profile.location(of).address;
                places.locations[&address]
            });
            let stack: Vec<LocationIndex> = stack.collect();
            places.samples.entry(stack).or_default().push(index);
        }
        places
    }

    /// The place of a location of the earlier profile, which is added if the later one lacks it.
    fn location(
        &mut self,
        profile: &mut Profile,
        before: &Profile,
        index: LocationIndex,
    ) -> LocationIndex {
        let location = before.location(index);
        *self.locations.entry(location.address).or_insert_with(|| {
            let mapping = location.mapping.map(|mapping| {
                let mapping = before.mapping(mapping);
                let known = profile.mappings.iter().position(|of| of == mapping);
                let place = known.unwrap_or_else(|| {
                    profile.mappings.push(mapping.clone());
                    profile.mappings.len() - 1
                });
                MappingIndex(place as u32)
            });
            let mut location = location.clone();
            location.mapping = mapping;
            profile.locations.push(location);
            LocationIndex(profile.locations.len() as u32 - 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Label, LabelValue, Location, Mapping, SampleType};

    /// A profile with a sample of each stack of addresses, of a thread, with these values.
    fn profile(samples: &[(&[u64], i64, [i64; 2])]) -> Profile {
        let mut profile = Profile {
            types: vec![
                SampleType::new("inuse_objects", "count"),
                SampleType::new("inuse_space", "bytes"),
            ],
            mappings: vec![Mapping {
                start: 1,
                limit: 100,
                ..Mapping::default()
            }],
            time_nanos: 1000 * samples.len() as i64,
            ..Profile::default()
        };
        for &(stack, thread, values) in samples {
            let mut indices = Vec::new();
            for &address in stack {
                let known = profile
                    .locations
                    .iter()
                    .position(|of| of.address == address);
                let place = known.unwrap_or_else(|| {
                    let mapping = Some(MappingIndex(0));
                    profile.locations.push(Location {
                        address,
                        mapping,
                        ..Location::default()
                    });
                    profile.locations.len() - 1
                });
                indices.push(LocationIndex(place as u32));
            }
            let value = LabelValue::Number {
                value: thread,
                unit: "".into(),
            };
            profile.samples.push(Sample {
                stack: indices.into(),
                values: values.to_vec(),
                labels: vec![Label {
                    key: "thread".into(),
                    value,
                }],
            });
        }
        profile
    }

    fn changed(profile: &Profile) -> Vec<(Vec<u64>, Vec<i64>)> {
        let addresses = |sample: &Sample| {
            let stack = sample.stack.iter();
            stack.map(|&of| profile.location(of).address).collect()
        };
        (profile.samples.iter())
            .map(|sample| (addresses(sample), sample.values.clone()))
            .collect()
    }

    #[test]
    fn what_came_and_went_remains() {
        let before = profile(&[
            (&[1, 2], 1, [10, 100]),
            (&[1, 2], 2, [5, 50]),
            (&[3], 1, [1, 8]),
        ]);
        let after = profile(&[
            (&[4, 2], 1, [2, 20]),
            (&[1, 2], 2, [7, 70]),
            (&[1, 2], 1, [10, 100]),
            (&[1], 1, [0, 0]),
        ]);
        let change = since(&before, after);
        assert_eq!(
            changed(&change),
            [
                (vec![4, 2], vec![2, 20]),
                (vec![1, 2], vec![2, 20]),
                (vec![3], vec![-1, -8]),
            ]
        );
        assert_eq!((change.mappings.len(), change.duration_nanos), (1, 1000));
        let gone = change.location(change.samples[2].stack[0]);
        assert_eq!(gone.mapping, Some(MappingIndex(0)));
    }

    #[test]
    fn figures_that_the_earlier_profile_lacks_are_new() {
        let mut before = profile(&[(&[1], 1, [10, 100])]);
        before.types.pop();
        before.samples[0].values.pop();
        let change = since(&before, profile(&[(&[1], 1, [12, 120])]));
        assert_eq!(changed(&change), [(vec![1], vec![2, 120])]);
    }
}
