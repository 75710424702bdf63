//! Writes pprof's protobuf, with names and lines where the profile has them.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use mallard_procfs::mapping::DELETED;

use crate::model::{
    Frame, LabelValue, Location, Mapping, MappingIndex, Profile, Sample, SampleType, Text,
};

/// Writes the profile packed by gzip, as `.pb.gz` files are.
///
/// # Errors
/// Those of `out`.
pub fn pprof(profile: &Profile, out: impl Write) -> io::Result<()> {
    let mut packer = GzEncoder::new(out, Compression::default());
    packer.write_all(&pprof_plain(profile))?;
    packer.finish()?.flush()
}

/// The profile as a message that is not packed.
pub fn pprof_plain(profile: &Profile) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text("");
    let mut body = Message::default();
    for of_type in &profile.types {
        body.message(1, writer.sample_type(of_type));
    }
    for sample in &profile.samples {
        body.message(2, writer.sample(sample));
    }
    let named: HashSet<MappingIndex> = profile
        .locations
        .iter()
        .filter(|location| !location.frames.is_empty())
        .filter_map(|location| location.mapping)
        .collect();
    for (index, mapping) in profile.mappings.iter().enumerate() {
        let named = named.contains(&MappingIndex(index as u32));
        body.message(3, writer.mapping(index, mapping, named));
    }
    for (index, location) in profile.locations.iter().enumerate() {
        body.message(4, writer.location(index, location));
    }
    let functions = std::mem::take(&mut writer.functions);
    body.0.extend(functions.message.0);
    body.number(7, writer.text(&profile.drop_frames));
    body.number(8, writer.text(&profile.keep_frames));
    body.number(9, profile.time_nanos as u64);
    body.number(10, profile.duration_nanos as u64);
    if let Some(period_type) = &profile.period_type {
        body.message(11, writer.sample_type(period_type));
    }
    body.number(12, profile.period);
    let comments: Vec<u64> = profile
        .comments
        .iter()
        .map(|comment| writer.text(comment))
        .collect();
    body.packed(13, &comments);
    if let Some(default_type) = profile.default_type {
        body.number(14, writer.text(&profile.types[default_type].kind));
    }
    for text in &writer.texts {
        body.bytes(6, text.as_bytes());
    }
    body.0
}

#[derive(Default)]
struct Writer {
    places: HashMap<Text, u64>,
    texts: Vec<Text>,
    functions: Functions,
}

/// The functions so far, by name and file.
#[derive(Default)]
struct Functions {
    numbers: HashMap<(u64, u64), u64>,
    message: Message,
}

impl Writer {
    fn text(&mut self, text: &str) -> u64 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = self.texts.len() as u64;
        let text: Text = text.into();
        self.places.insert(Arc::clone(&text), place);
        self.texts.push(text);
        place
    }

    fn sample_type(&mut self, of_type: &SampleType) -> Message {
        let mut message = Message::default();
        message.number(1, self.text(&of_type.kind));
        message.number(2, self.text(&of_type.unit));
        message
    }

    fn sample(&mut self, sample: &Sample) -> Message {
        let mut message = Message::default();
        let stack: Vec<u64> = sample.stack.iter().map(|l| u64::from(l.0) + 1).collect();
        let values: Vec<u64> = sample.values.iter().map(|&value| value as u64).collect();
        message.packed(1, &stack);
        message.packed(2, &values);
        for label in &sample.labels {
            let mut part = Message::default();
            part.number(1, self.text(&label.key));
            match &label.value {
                LabelValue::Text(text) => part.number(2, self.text(text)),
                LabelValue::Number { value, unit } => {
                    part.number(3, *value as u64);
                    part.number(4, self.text(unit));
                }
            }
            message.message(3, part);
        }
        message
    }

    fn mapping(&mut self, index: usize, mapping: &Mapping, named: bool) -> Message {
        let mut message = Message::default();
        message.number(1, index as u64 + 1);
        message.number(2, mapping.start);
        message.number(3, mapping.limit);
        message.number(4, mapping.file_offset);
        let deleted = if mapping.deleted { DELETED } else { "" };
        message.number(5, self.text(&format!("{}{deleted}", mapping.path)));
        message.number(6, self.text(&mapping.build_id));
        // A viewer that finds these set does not look for names itself.
        for field in 7..=10 {
            message.number(field, u64::from(named));
        }
        message
    }

    fn location(&mut self, index: usize, location: &Location) -> Message {
        let mut message = Message::default();
        message.number(1, index as u64 + 1);
        message.number(2, location.mapping.map_or(0, |m| u64::from(m.0) + 1));
        message.number(3, location.address);
        for frame in &location.frames {
            let mut line = Message::default();
            line.number(1, self.function(frame));
            line.number(2, u64::from(frame.line));
            message.message(4, line);
        }
        message
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let (name, file) = (self.text(&frame.function), self.text(&frame.file));
        let next = self.functions.numbers.len() as u64 + 1;
        let number = *self.functions.numbers.entry((name, file)).or_insert(next);
        if number == next {
            let mut message = Message::default();
            message.number(1, number);
            message.number(2, name);
            message.number(3, name);
            message.number(4, file);
            self.functions.message.message(5, message);
        }
        number
    }
}

/// The bytes of a message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; 0 is what an absent field means, so it is left out.
    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: Message) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, values: &[u64]) {
        if !values.is_empty() {
            let mut packed = Message::default();
            for &value in values {
                packed.varint(value);
            }
            self.message(field, packed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Label, LocationIndex};
    use crate::read;

    fn small() -> Profile {
        let frame = |function: &str, line| Frame {
            function: function.into(),
            file: "src/a.rs".into(),
            line,
        };
        Profile {
            types: vec![
                SampleType::new("inuse_objects", "count"),
                SampleType::new("inuse_space", "bytes"),
            ],
            default_type: Some(1),
            samples: vec![Sample {
                stack: [LocationIndex(1), LocationIndex(0)].into(),
                values: vec![-3, i64::MAX],
                labels: vec![
                    Label {
                        key: "thread".into(),
                        value: LabelValue::Text("worker".into()),
                    },
                    Label {
                        key: "bytes".into(),
                        value: LabelValue::Number {
                            value: 64,
                            unit: "bytes".into(),
                        },
                    },
                ],
            }],
            locations: vec![
                Location {
                    address: 0xffff_ffff_0000_1234,
                    ..Location::default()
                },
                Location {
                    address: 0x1234,
                    mapping: Some(MappingIndex(0)),
                    frames: vec![frame("inner", 7), frame("outer", 9)],
                },
            ],
            mappings: vec![Mapping {
                start: 0x1000,
                limit: 0x2000,
                file_offset: 0x40,
                path: "/x/prog".into(),
                build_id: "abcd".into(),
                deleted: true,
            }],
            period: 524_288,
            period_type: Some(SampleType::new("space", "bytes")),
            time_nanos: 1_700_000_000_000_000_000,
            duration_nanos: 5,
            comments: vec!["a comment".into()],
            drop_frames: "malloc|free".into(),
            keep_frames: "".into(),
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let profile = small();
        assert_eq!(read::profile(&pprof_plain(&profile)), Ok(profile.clone()));
        let mut packed = Vec::new();
        pprof(&profile, &mut packed).unwrap();
        assert_eq!(read::profile(&packed), Ok(profile));
    }

    #[test]
    fn a_message_that_is_cut_short_or_refers_to_nothing_is_refused() {
        let whole = pprof_plain(&small());
        for end in 0..whole.len() {
            // A cut between two fields leaves a message that lacks texts.
            assert!(read::profile(&whole[..end]).is_err(), "{end}");
        }
    }
}
