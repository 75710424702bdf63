//! A profile without the allocator's own frames, for viewers that do not know them.

use std::collections::HashMap;
use std::sync::Arc;

use super::stack::Stacks;
use crate::model::{LocationIndex, Profile};

/// The same figures with stacks that start at the allocator's callers.
pub fn trimmed(profile: &Profile) -> Profile {
    let mut stacks = Stacks::new(profile);
    let mut result = profile.clone();
    let mut cut: HashMap<(LocationIndex, usize), LocationIndex> = HashMap::new();
    for sample in &mut result.samples {
        let (place, inlined) = stacks.steps(&sample.stack).start();
        if (place, inlined) == (0, 0) {
            continue;
        }
        let mut stack = sample.stack[place..].to_vec();
        if inlined > 0 {
            // The allocator is inlined into its caller, so the location keeps a part of its frames.
            let whole = stack[0];
            stack[0] = *cut.entry((whole, inlined)).or_insert_with(|| {
                let mut location = profile.location(whole).clone();
                location.frames.drain(..inlined);
                result.locations.push(location);
                LocationIndex(result.locations.len() as u32 - 1)
            });
        }
        sample.stack = Arc::from(stack);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Location, Sample, SampleType};

    #[test]
    fn stacks_start_at_the_allocator_s_caller_even_where_it_is_inlined() {
        let location = |functions: &[&str]| Location {
            frames: functions
                .iter()
                .map(|function| Frame {
                    function: (*function).into(),
                    ..Frame::default()
                })
                .collect(),
            ..Location::default()
        };
        let sample = |stack: &[u32]| Sample {
            stack: stack.iter().map(|&index| LocationIndex(index)).collect(),
            values: vec![1],
            labels: Vec::new(),
        };
        let profile = Profile {
            types: vec![SampleType::new("inuse_space", "bytes")],
            locations: vec![
                location(&["malloc"]),
                location(&["__rust_alloc", "alloc::alloc::alloc", "shop::fill"]),
                location(&["main"]),
            ],
            samples: vec![sample(&[0, 1, 2]), sample(&[2])],
            ..Profile::default()
        };
        let text = crate::write::collapsed(&trimmed(&profile), 0);
        assert_eq!(text, "main 1\nmain;shop::fill;alloc::alloc::alloc 1\n");
    }
}
