//! A profile made by hand, with every kind of figure, for the tests of what is shown.

use mallard_profile::model::{
    Frame, Label, LabelValue, Location, LocationIndex, Mapping, MappingIndex, Profile, Sample,
    SampleType,
};

const KIND: [(&str, &str); 10] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("waste_space", "bytes"),
    ("frag_space", "bytes"),
    ("freed_objects", "count"),
    ("lifetime", "nanoseconds"),
];

/// Three sites of a shop's server. `scale` multiplies its cache, as time would.
pub fn shop(scale: i64) -> Profile {
    Profile {
        types: KIND.map(|(kind, unit)| SampleType::new(kind, unit)).into(),
        default_type: Some(3),
        samples: samples(scale),
        locations: locations(),
        mappings: vec![Mapping {
            start: 0x1000,
            limit: 0x2000,
            path: "/home/me/shop/server".into(),
            ..Mapping::default()
        }],
        period: 512 * 1024,
        period_type: Some(SampleType::new("space", "bytes")),
        duration_nanos: 30_000_000_000,
        comments: vec!["stats.allocated: 1300000000, 0 ns before".into()],
        ..Profile::default()
    }
}

/// The frames of the three sites, and of two that are hard to show.
fn locations() -> Vec<Location> {
    let frame = |function: &str, file: &str, line| Frame {
        function: function.into(),
        file: file.into(),
        line,
    };
    let at = |address, frames: &[Frame]| Location {
        address,
        mapping: Some(MappingIndex(0)),
        frames: frames.to_vec(),
    };
    vec![
        at(0x1010, &[frame("malloc", "", 0)]),
        at(
            0x1020,
            &[
                frame(
                    "std::vector<char>::resize",
                    "/usr/include/c++/12/bits/stl_vector.h",
                    1016,
                ),
                frame("cache::Entry::new", "/home/me/shop/src/cache.rs", 88),
                frame(
                    "cache::Shard<Key>::insert",
                    "/home/me/shop/src/cache.rs",
                    140,
                ),
            ],
        ),
        at(0x1030, &[frame("api::put", "/home/me/shop/src/api.rs", 7)]),
        at(0x1040, &[frame("api::get", "/home/me/shop/src/api.rs", 31)]),
        at(0x1050, &[frame("main", "/home/me/shop/src/main.rs", 3)]),
        at(0x1060, &[]),
        at(
            0x1070,
            &[frame("</script><b>&evil;\u{1b}[31m", "a\nb.c", 1)],
        ),
    ]
}

/// What each site has allocated.
fn samples(scale: i64) -> Vec<Sample> {
    let kib = 1024;
    let n = 1_300_000 * scale;
    vec![
        sample(
            &[0, 1, 2, 4],
            "worker",
            640,
            [
                2 * n,
                2 * n * 640,
                n,
                n * 640,
                n,
                n * 900,
                n * 13,
                n * 4,
                n,
                n * 2_000_000_000,
            ],
        ),
        sample(
            &[0, 3, 4],
            "main",
            64 * kib,
            [
                9000,
                9000 * 64 * kib,
                6450,
                6450 * 64 * kib,
                6450,
                6450 * 64 * kib,
                6450 * 11 * kib,
                6450 * 100,
                2550,
                2550 * 1_300_000,
            ],
        ),
        sample(
            &[0, 5, 4],
            "main",
            48,
            [100, 4800, 100, 4800, 100, 4800, 400, 0, 0, 0],
        ),
        sample(
            &[0, 6],
            "main",
            1024,
            [10, 10_240, 10, 10_240, 10, 10_240, 0, 0, 0, 0],
        ),
    ]
}

/// One sample of ten figures.
fn sample(stack: &[u32], thread: &str, bytes: i64, values: [i64; 10]) -> Sample {
    Sample {
        stack: stack.iter().map(|&index| LocationIndex(index)).collect(),
        values: values.to_vec(),
        labels: vec![
            Label {
                key: "thread".into(),
                value: LabelValue::Text(thread.into()),
            },
            Label {
                key: "bytes".into(),
                value: LabelValue::Number {
                    value: bytes,
                    unit: "bytes".into(),
                },
            },
        ],
    }
}
