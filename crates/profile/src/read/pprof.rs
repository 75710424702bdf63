//! pprof's protobuf, as `profile.proto` of google/pprof describes it.
//!
//! The message refers to texts, mappings, functions and locations by number, and any order of these
//! is allowed. So one pass keeps the parts, and a second one puts them together.

use std::collections::HashMap;
use std::sync::Arc;

use mallard_procfs::mapping::DELETED;

use super::Error;
use super::wire::{Damage, Field, Fields, Value};
use crate::model::{
    Frame, Label, LabelValue, Location, LocationIndex, Mapping, MappingIndex, Profile, Sample,
    SampleType, Text, Texts,
};

/// The first bytes of such a file: a field of `Profile` that is a message, or a number.
pub const MAGIC: &[u8] = &[
    0x0a, 0x12, 0x1a, 0x22, 0x2a, 0x32, 0x38, 0x40, 0x48, 0x50, 0x5a, 0x60, 0x6a, 0x70, 0x78,
];

pub fn read(bytes: &[u8]) -> Result<Profile, Error> {
    let parts = Parts::collect(bytes).map_err(damaged)?;
    let profile = parts.assemble().map_err(damaged)?;
    if profile.types.is_empty() {
        return Err(Error::Pprof("it has no sample types".to_owned()));
    }
    Ok(profile)
}

fn damaged(what: Damage) -> Error {
    match what {
        "a field beyond the end" | "a number beyond the end" => Error::Short(what.to_owned()),
        other => Error::Pprof(other.to_owned()),
    }
}

/// The top-level fields, not yet read themselves.
#[derive(Default)]
struct Parts<'a> {
    types: Vec<&'a [u8]>,
    samples: Vec<&'a [u8]>,
    mappings: Vec<&'a [u8]>,
    locations: Vec<&'a [u8]>,
    functions: Vec<&'a [u8]>,
    texts: Vec<Text>,
    period_type: Option<&'a [u8]>,
    comments: Vec<u64>,
    /// The numbers of single fields: drop_frames to default_sample_type.
    numbers: [u64; 15],
}

impl<'a> Parts<'a> {
    fn collect(bytes: &'a [u8]) -> Result<Parts<'a>, Damage> {
        let mut parts = Parts::default();
        let mut texts = Texts::default();
        for field in Fields::new(bytes) {
            let Field { number, value } = field?;
            match number {
                1 => parts.types.push(value.bytes()?),
                2 => parts.samples.push(value.bytes()?),
                3 => parts.mappings.push(value.bytes()?),
                4 => parts.locations.push(value.bytes()?),
                5 => parts.functions.push(value.bytes()?),
                6 => {
                    let text = String::from_utf8_lossy(value.bytes()?);
                    parts.texts.push(texts.get(&text));
                }
                11 => parts.period_type = Some(value.bytes()?),
                13 => value.numbers(&mut parts.comments)?,
                7..=14 => parts.numbers[number as usize] = value.number()?,
                _ => {}
            }
        }
        if parts.texts.first().is_some_and(|first| !first.is_empty()) {
            return Err("its first text is not the empty one");
        }
        Ok(parts)
    }

    fn text(&self, index: u64) -> Result<Text, Damage> {
        // A message of default values alone has no texts.
        if index == 0 {
            return Ok(self.texts.first().map_or_else(|| "".into(), Arc::clone));
        }
        let text = usize::try_from(index)
            .ok()
            .and_then(|index| self.texts.get(index));
        text.cloned().ok_or("a text that is not there")
    }

    fn assemble(&self) -> Result<Profile, Damage> {
        let types: Vec<SampleType> = collect(&self.types, |bytes| self.sample_type(bytes))?;
        let (mapping_places, mappings) =
            self.numbered(&self.mappings, |bytes| self.mapping(bytes))?;
        let (function_places, functions) =
            self.numbered(&self.functions, |bytes| self.function(bytes))?;
        let (location_places, locations) = self.numbered(&self.locations, |bytes| {
            self.location(bytes, &mapping_places, &function_places, &functions)
        })?;
        let samples = collect(&self.samples, |bytes| {
            self.sample(bytes, types.len(), &location_places)
        })?;
        let default_kind = self.text(self.numbers[14])?;
        let named = types.iter().position(|t| t.kind == default_kind);
        Ok(Profile {
            default_type: named.or(types.len().checked_sub(1)),
            types,
            samples,
            locations,
            mappings,
            period: i64::max(0, self.numbers[12] as i64) as u64,
            period_type: match self.period_type {
                Some(bytes) => Some(self.sample_type(bytes)?),
                None => None,
            },
            time_nanos: self.numbers[9] as i64,
            duration_nanos: self.numbers[10] as i64,
            comments: collect(&self.comments, |&index| self.text(index))?,
            drop_frames: self.text(self.numbers[7])?,
            keep_frames: self.text(self.numbers[8])?,
        })
    }

    /// Reads parts that have a number of their own in field 1, and where each number lies.
    fn numbered<T>(
        &self,
        parts: &[&'a [u8]],
        read: impl Fn(&'a [u8]) -> Result<T, Damage>,
    ) -> Result<(Places, Vec<T>), Damage> {
        let mut places = Places::with_capacity(parts.len());
        for (index, bytes) in parts.iter().enumerate() {
            let own = numbers_of(bytes, [1])?[0];
            let index = u32::try_from(index).map_err(|_| "too many parts")?;
            if own == 0 || places.insert(own, index).is_some() {
                return Err("two parts with one number, or one with the number 0");
            }
        }
        Ok((places, collect(parts, |bytes| read(bytes))?))
    }

    fn sample_type(&self, bytes: &[u8]) -> Result<SampleType, Damage> {
        let [kind, unit] = numbers_of(bytes, [1, 2])?;
        Ok(SampleType {
            kind: self.text(kind)?,
            unit: self.text(unit)?,
        })
    }

    fn mapping(&self, bytes: &[u8]) -> Result<Mapping, Damage> {
        let [start, limit, file_offset, path, build_id] = numbers_of(bytes, [2, 3, 4, 5, 6])?;
        let path = self.text(path)?;
        let (path, deleted) = match path.strip_suffix(DELETED) {
            Some(path) => (path.into(), true),
            None => (path, false),
        };
        Ok(Mapping {
            start,
            limit,
            file_offset,
            path,
            build_id: self.text(build_id)?,
            deleted,
        })
    }

    /// The name and file of a function, as a frame without a line.
    fn function(&self, bytes: &[u8]) -> Result<Frame, Damage> {
        let [name, system_name, file] = numbers_of(bytes, [2, 3, 4])?;
        Ok(Frame {
            function: self.text(if name == 0 { system_name } else { name })?,
            file: self.text(file)?,
            line: 0,
        })
    }

    fn location(
        &self,
        bytes: &[u8],
        mappings: &Places,
        function_places: &Places,
        functions: &[Frame],
    ) -> Result<Location, Damage> {
        let [mapping, address] = numbers_of(bytes, [2, 3])?;
        let mapping = match mapping {
            0 => None,
            number => {
                let place = mappings.get(&number).ok_or("a mapping that is not there")?;
                Some(MappingIndex(*place))
            }
        };
        let mut frames = Vec::new();
        for field in Fields::new(bytes) {
            let Field { number: 4, value } = field? else {
                continue;
            };
            let [function, line] = numbers_of(value.bytes()?, [1, 2])?;
            let place = function_places.get(&function);
            let place = place.ok_or("a function that is not there")?;
            frames.push(Frame {
                line: u32::try_from(line).unwrap_or(0),
                ..functions[*place as usize].clone()
            });
        }
        frames.retain(|frame| !frame.function.is_empty());
        Ok(Location {
            address,
            mapping,
            frames,
        })
    }

    fn sample(&self, bytes: &[u8], types: usize, places: &Places) -> Result<Sample, Damage> {
        let (mut stack, mut values, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for field in Fields::new(bytes) {
            let Field { number, value } = field?;
            match number {
                1 => value.numbers(&mut stack)?,
                2 => value.numbers(&mut values)?,
                3 => labels.push(self.label(value)?),
                _ => {}
            }
        }
        if values.len() != types {
            return Err("a sample with more or fewer values than there are types");
        }
        let stack = collect(&stack, |number| {
            let place = places.get(number).ok_or("a location that is not there")?;
            Ok(LocationIndex(*place))
        })?;
        Ok(Sample {
            stack: stack.into(),
            values: values.into_iter().map(|value| value as i64).collect(),
            labels,
        })
    }

    fn label(&self, value: Value<'_>) -> Result<Label, Damage> {
        let [key, text, number, unit] = numbers_of(value.bytes()?, [1, 2, 3, 4])?;
        let text = self.text(text)?;
        let value = if text.is_empty() {
            LabelValue::Number {
                value: number as i64,
                unit: self.text(unit)?,
            }
        } else {
            LabelValue::Text(text)
        };
        Ok(Label {
            key: self.text(key)?,
            value,
        })
    }
}

/// Where the part of each number lies.
type Places = HashMap<u64, u32>;

fn collect<P, T>(parts: &[P], read: impl Fn(&P) -> Result<T, Damage>) -> Result<Vec<T>, Damage> {
    parts.iter().map(read).collect()
}

/// The numbers in these fields of a message, 0 where a field is absent. The last of a field counts.
fn numbers_of<const N: usize>(bytes: &[u8], wanted: [u64; N]) -> Result<[u64; N], Damage> {
    let mut found = [0; N];
    for field in Fields::new(bytes) {
        let Field { number, value } = field?;
        if let Some(place) = wanted.iter().position(|&wanted| wanted == number) {
            found[place] = value.number()?;
        }
    }
    Ok(found)
}
