//! Collapsed stacks, as flamegraph.pl and its relatives read them: `main;work;alloc 4096`.

use std::collections::BTreeMap;

use crate::model::Profile;

/// One line for each stack of names, the outermost first, with the sum of a type. Stacks without
/// figures are left out.
pub fn collapsed(profile: &Profile, of_type: usize) -> String {
    let mut stacks: BTreeMap<String, i128> = BTreeMap::new();
    for sample in &profile.samples {
        let value = sample.values[of_type];
        if value == 0 {
            continue;
        }
        let mut names: Vec<String> = Vec::new();
        for &index in sample.stack.iter().rev() {
            let location = profile.location(index);
            if location.frames.is_empty() {
                names.push(cleaned(&profile.unnamed(location)));
            }
            let frames = location.frames.iter().rev();
            names.extend(frames.map(|frame| cleaned(&frame.function)));
        }
        *stacks.entry(names.join(";")).or_default() += i128::from(value);
    }
    let mut text = String::new();
    for (stack, value) in stacks {
        text.push_str(&format!("{stack} {value}\n"));
    }
    text
}

/// A name without what would end it: `;` divides frames, a line's end stacks.
fn cleaned(name: &str) -> String {
    name.replace(';', ":")
        .replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Location, LocationIndex, Sample, SampleType};

    #[test]
    fn equal_stacks_are_one_line_and_inlined_frames_are_frames() {
        let named = |functions: &[&str]| Location {
            frames: functions
                .iter()
                .map(|function| Frame {
                    function: (*function).into(),
                    ..Frame::default()
                })
                .collect(),
            ..Location::default()
        };
        let sample = |stack: &[u32], value| Sample {
            stack: stack.iter().map(|&index| LocationIndex(index)).collect(),
            values: vec![value],
            labels: Vec::new(),
        };
        let unnamed = Location {
            address: 0x10,
            ..Location::default()
        };
        let profile = Profile {
            types: vec![SampleType::new("inuse_space", "bytes")],
            locations: vec![named(&["inner;x", "outer"]), named(&["main"]), unnamed],
            samples: vec![
                sample(&[0, 1], 5),
                sample(&[0, 1], 6),
                sample(&[2], 7),
                sample(&[1], 0),
            ],
            ..Profile::default()
        };
        assert_eq!(collapsed(&profile, 0), "0x10 7\nmain;outer;inner:x 11\n");
    }
}
