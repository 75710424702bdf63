//! Several profiles together: their sum, and one set of names for all of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{
    BY_STACK_ALONE, Frame, Location, LocationIndex, Mapping, MappingIndex, Profile, Sample,
    SampleType, Text,
};

/// The profiles have no kind of figure in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has no kind of figure in common with the others")]
pub struct Unlike;

/// Profiles with the same kinds of figures and one list of places, so that names are found once.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// All but the samples.
    shared: Profile,
    places: HashMap<Place, LocationIndex>,
    mappings: HashMap<Identity, MappingIndex>,
    samples: Vec<Vec<Sample>>,
    /// Whether some profile had a kind of figure that another one lacks.
    lost: bool,
}

/// What makes two locations one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    address: u64,
    mapping: Option<MappingIndex>,
    frames: Vec<Frame>,
}

/// What makes two mappings one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity(u64, u64, u64, Text, Text, bool);

impl Parts {
    /// Adds a profile, as the last part.
    ///
    /// # Errors
    /// It has no kind of figure in common with those before. Then it is left out.
    pub fn add(&mut self, profile: &Profile) -> Result<(), Unlike> {
        let columns = if self.samples.is_empty() {
            self.begin(profile);
            (0..profile.types.len()).collect()
        } else {
            self.common_with(profile)?
        };
        let mappings: Vec<MappingIndex> = (profile.mappings.iter())
            .map(|mapping| self.mapping(mapping))
            .collect();
        let locations: Vec<LocationIndex> = (profile.locations.iter())
            .map(|location| self.location(location, &mappings))
            .collect();
        let mut stacks: HashMap<*const LocationIndex, Arc<[LocationIndex]>> = HashMap::new();
        let samples = profile.samples.iter().map(|sample| {
            let stack = stacks.entry(sample.stack.as_ptr()).or_insert_with(|| {
                let stack = sample.stack.iter();
                stack.map(|index| locations[index.0 as usize]).collect()
            });
            Sample {
                stack: Arc::clone(stack),
                values: columns
                    .iter()
                    .map(|&column| sample.values[column])
                    .collect(),
                labels: sample.labels.clone(),
            }
        });
        self.samples.push(samples.collect());
        Ok(())
    }

    fn begin(&mut self, profile: &Profile) {
        let by_stack_alone = profile.is_by_stack_alone();
        self.shared = Profile {
            samples: Vec::new(),
            locations: Vec::new(),
            mappings: Vec::new(),
            comments: by_stack_alone
                .then(|| BY_STACK_ALONE.into())
                .into_iter()
                .collect(),
            ..profile.clone()
        };
    }

    /// The columns of the profile that all have, of which those before lose the others.
    fn common_with(&mut self, profile: &Profile) -> Result<Vec<usize>, Unlike> {
        let of_type = |wanted: &SampleType| profile.types.iter().position(|it| it == wanted);
        let kept: Vec<(usize, usize)> = (self.shared.types.iter().enumerate())
            .filter_map(|(own, wanted)| Some((own, of_type(wanted)?)))
            .collect();
        if kept.is_empty() {
            return Err(Unlike);
        }
        self.lost |= kept.len() < self.shared.types.len() || kept.len() < profile.types.len();
        let shared = &mut self.shared;
        if kept.len() < shared.types.len() {
            let default = shared.default_type;
            shared.default_type =
                default.and_then(|of| kept.iter().position(|(own, _)| *own == of));
            shared.types = kept
                .iter()
                .map(|(own, _)| shared.types[*own].clone())
                .collect();
            for sample in self.samples.iter_mut().flatten() {
                sample.values = kept.iter().map(|(own, _)| sample.values[*own]).collect();
            }
        }
        if profile.is_by_stack_alone() && !shared.is_by_stack_alone() {
            shared.comments.push(BY_STACK_ALONE.into());
        }
        // Figures are estimates already; the error is that of the profile with fewest samples.
        shared.period = shared.period.max(profile.period);
        shared.time_nanos = shared.time_nanos.max(profile.time_nanos);
        shared.duration_nanos = shared.duration_nanos.max(profile.duration_nanos);
        Ok(kept.into_iter().map(|(_, theirs)| theirs).collect())
    }

    fn mapping(&mut self, mapping: &Mapping) -> MappingIndex {
        let Mapping {
            start,
            limit,
            file_offset,
            path,
            build_id,
            deleted,
        } = mapping.clone();
        let identity = Identity(start, limit, file_offset, path, build_id, deleted);
        let known = &mut self.shared.mappings;
        *self.mappings.entry(identity).or_insert_with(|| {
            known.push(mapping.clone());
            MappingIndex(known.len() as u32 - 1)
        })
    }

    fn location(&mut self, location: &Location, mappings: &[MappingIndex]) -> LocationIndex {
        let place = Place {
            address: location.address,
            mapping: location.mapping.map(|index| mappings[index.0 as usize]),
            frames: location.frames.clone(),
        };
        let known = &mut self.shared.locations;
        *self.places.entry(place).or_insert_with_key(|place| {
            known.push(Location {
                address: place.address,
                mapping: place.mapping,
                frames: place.frames.clone(),
            });
            LocationIndex(known.len() as u32 - 1)
        })
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Whether some profile had a kind of figure that another one lacks: the sum has it not.
    pub fn lost(&self) -> bool {
        self.lost
    }

    /// Some of the parts together, by their places.
    pub fn sum(&self, parts: &[usize]) -> Profile {
        let samples = parts.iter().flat_map(|&part| &self.samples[part]);
        Profile {
            samples: samples.cloned().collect(),
            ..self.shared.clone()
        }
    }

    /// All of the parts together.
    pub fn all(&self) -> Profile {
        let samples = self.samples.iter().flatten();
        Profile {
            samples: samples.cloned().collect(),
            ..self.shared.clone()
        }
    }

    /// Gives all parts the names that their sum has got.
    pub fn take_names(&mut self, sum: &Profile) {
        self.shared.locations.clone_from(&sum.locations);
        self.places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::View;
    use crate::view::rows::{By, rows};

    /// One sample of a function of `app`, whose code begins at an address.
    fn profile(start: u64, function: &str, types: &[(&str, i64)]) -> Profile {
        let kinds = types.iter();
        Profile {
            types: kinds
                .clone()
                .map(|(kind, _)| SampleType::new(kind, "bytes"))
                .collect(),
            mappings: vec![Mapping {
                start,
                limit: start + 0x1000,
                path: "/bin/app".into(),
                ..Mapping::default()
            }],
            locations: vec![Location {
                address: start + 0x10,
                mapping: Some(MappingIndex(0)),
                frames: vec![Frame {
                    function: function.into(),
                    ..Frame::default()
                }],
            }],
            samples: vec![Sample {
                stack: [LocationIndex(0)].into(),
                values: kinds.map(|(_, value)| *value).collect(),
                labels: Vec::new(),
            }],
            ..Profile::default()
        }
    }

    fn live(profile: &Profile) -> Vec<(String, i128)> {
        let figures = View::Live.figures(profile).unwrap();
        let rows = rows(profile, figures, By::Function).into_iter();
        rows.map(|row| (row.key.clone(), row.main(figures)))
            .collect()
    }

    #[test]
    fn a_sum_has_the_figures_of_all_by_function_wherever_the_code_lay() {
        let mut parts = Parts::default();
        for (start, function, bytes) in [
            (0x1000, "a::x", 10),
            (0x5000, "a::x", 20),
            (0x1000, "a::y", 5),
        ] {
            parts
                .add(&profile(start, function, &[("inuse_space", bytes)]))
                .unwrap();
        }
        assert_eq!(
            live(&parts.all()),
            [("a::x".into(), 30), ("a::y".into(), 5)]
        );
        assert_eq!(live(&parts.sum(&[1])), [("a::x".into(), 20)]);
        assert_eq!(parts.all().mappings.len(), 2, "one is in two profiles");
        assert!(!parts.lost());
    }

    #[test]
    fn only_figures_that_all_have_are_summed() {
        let mut parts = Parts::default();
        let first = [
            ("alloc_space", 100),
            ("inuse_space", 10),
            ("peak_space", 50),
        ];
        parts.add(&profile(0, "a::x", &first)).unwrap();
        let second = [("inuse_space", 1), ("alloc_space", 7)];
        parts.add(&profile(0, "a::x", &second)).unwrap();
        let sum = parts.all();
        let kinds: Vec<&str> = sum.types.iter().map(|it| &*it.kind).collect();
        assert_eq!(kinds, ["alloc_space", "inuse_space"]);
        assert_eq!(
            (sum.total(0), sum.total(1), sum.locations.len()),
            (107, 11, 1)
        );
        assert!(parts.lost());
        let other = profile(0, "a::x", &[("contentions", 1)]);
        assert_eq!(parts.add(&other), Err(Unlike));
        assert_eq!(parts.len(), 2);
    }
}
