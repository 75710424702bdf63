//! Makes a [`Profile`] of the records of a process and of its mappings.

use std::collections::HashMap;
use std::sync::Arc;

use mallard_formats::profile;

use super::records::{FRACTION_BITS, Group, Key, Records, Root, Site, Thread};
use crate::model::{
    INUSE_SPACE_INDEX, Label, LabelValue, Location, LocationIndex, Mapping, MappingIndex, Profile,
    Sample, SampleType, TYPES, Text,
};

const NS_PER_MS: u64 = 1_000_000;

/// The mean bytes between samples: more than asked for where samples of fast threads were thinned
/// out (`sampler/pace.rs` of the allocator), as the weights of those that are in use tell.
fn period(root: &Root, records: &Records) -> u64 {
    let asked = 1u64 << root.lg_sample;
    let one = (1u64 << FRACTION_BITS) as f64;
    let (mut sum, mut all) = (0.0, 0.0);
    for (key, group) in &records.samples {
        let others = 1.0 - one / key.weight as f64;
        if key.weight == 0 || others <= 0.0 {
            continue;
        }
        let size = key.requested as f64 + 1.0;
        let bytes = others * key.weight as f64 * size * group.count as f64;
        sum += size / -others.ln() * bytes;
        all += bytes;
    }
    // Weights are rounded.
    if sum > 1.1 * all * asked as f64 {
        (sum / all) as u64
    } else {
        asked
    }
}

/// The profile, with notes on it. `thread` names a thread.
pub fn profile(
    root: &Root,
    records: &Records,
    comment: Option<String>,
    mappings: Vec<Mapping>,
    thread: &dyn Fn(Thread) -> Text,
) -> Profile {
    let mut builder = Builder {
        profile: Profile {
            types: TYPES
                .iter()
                .map(|(kind, unit)| SampleType::new(kind, unit))
                .collect(),
            default_type: Some(INUSE_SPACE_INDEX),
            mappings,
            period: period(root, records),
            period_type: Some(SampleType::new(profile::SPACE, profile::BYTES)),
            comments: comment.map(Into::into).into_iter().collect(),
            ..Profile::default()
        },
        places: HashMap::new(),
    };
    let mut stacks: HashMap<u64, Arc<[LocationIndex]>> = HashMap::new();
    for site in &records.sites {
        let stack = builder.stack(&site.frames);
        stacks.insert(site.at, Arc::clone(&stack));
        builder.sample(stack, of_site(site), Vec::new());
    }
    let mut threads: HashMap<Thread, Text> = HashMap::new();
    // Weights are fractions: what rounding leaves goes to the next row.
    let mut rest = 0u128;
    for (key, group) in &records.samples {
        let Some(stack) = stacks.get(&key.site) else {
            continue;
        };
        let units = u128::from(key.weight) * u128::from(group.count) + rest;
        rest = units & ((1 << FRACTION_BITS) - 1);
        let blocks = u64::try_from(units >> FRACTION_BITS).unwrap_or(u64::MAX);
        let name = threads
            .entry(key.thread)
            .or_insert_with(|| thread(key.thread));
        let labels = vec![
            number("bytes", key.usable, profile::BYTES),
            Label {
                key: profile::THREAD.into(),
                value: LabelValue::Text(Arc::clone(name)),
            },
            number(profile::ARENA, key.arena.into(), ""),
        ];
        builder.sample(Arc::clone(stack), of_samples(key, group, blocks), labels);
    }
    builder.profile
}

/// The values of what was ever allocated at a site.
fn of_site(site: &Site) -> [u64; TYPES.len()] {
    let lived = site.lived_ms.saturating_mul(NS_PER_MS);
    let blocks = site.ever[0] >> FRACTION_BITS;
    [
        blocks,
        site.ever[1],
        0,
        0,
        site.peak_bytes,
        0,
        site.freed,
        lived,
        0,
    ]
}

/// The values of live samples that stand for this many blocks.
fn of_samples(key: &Key, group: &Group, blocks: u64) -> [u64; TYPES.len()] {
    let bytes = weighted(key.weight, key.usable).saturating_mul(group.count);
    let requested = weighted(key.weight, key.requested).saturating_mul(group.count);
    let weight = key.weight as f64 / f64::from(1u32 << FRACTION_BITS);
    [
        0,
        0,
        blocks,
        bytes,
        0,
        bytes.saturating_sub(requested),
        0,
        0,
        (group.pinned * weight).round() as u64,
    ]
}

/// What a block of this weight stands for.
fn weighted(weight: u64, bytes: u64) -> u64 {
    let sum = u128::from(weight) * u128::from(bytes) + (1 << (FRACTION_BITS - 1));
    u64::try_from(sum >> FRACTION_BITS).unwrap_or(u64::MAX)
}

fn number(key: &str, value: u64, unit: &str) -> Label {
    Label {
        key: key.into(),
        value: LabelValue::Number {
            value: signed(value),
            unit: unit.into(),
        },
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

struct Builder {
    profile: Profile,
    places: HashMap<u64, LocationIndex>,
}

impl Builder {
    fn stack(&mut self, frames: &[u64]) -> Arc<[LocationIndex]> {
        let frames = frames
            .iter()
            .map(|frame| self.place(frame.saturating_sub(1)));
        frames.collect()
    }

    fn place(&mut self, address: u64) -> LocationIndex {
        if let Some(&place) = self.places.get(&address) {
            return place;
        }
        let place = LocationIndex(self.profile.locations.len() as u32);
        let mappings = &self.profile.mappings;
        let next = mappings.partition_point(|mapping| mapping.start <= address);
        let holder = next.checked_sub(1);
        let holder = holder.filter(|&index| address < mappings[index].limit);
        self.profile.locations.push(Location {
            address,
            mapping: holder.map(|index| MappingIndex(index as u32)),
            frames: Vec::new(),
        });
        self.places.insert(address, place);
        place
    }

    fn sample(
        &mut self,
        stack: Arc<[LocationIndex]>,
        values: [u64; TYPES.len()],
        labels: Vec<Label>,
    ) {
        if values.iter().all(|&value| value == 0) {
            return;
        }
        let values = values.map(signed);
        let values = values[..self.profile.types.len()].to_vec();
        self.profile.samples.push(Sample {
            stack,
            values,
            labels,
        });
    }
}
