//! The data of a heap profile, whatever file it came from.
//!
//! A [`Profile`] has sample types, each a kind of figure with its unit. A [`Sample`] is one stack
//! with a figure for each of the types. A stack is a list of [`Location`]s, the innermost first, by
//! their index. A location is an address inside a [`Mapping`]; its frames have names, where the
//! file has them or [`crate::names`] found them.
//!
//! Invariants, which the readers hold: a sample has as many values as the profile has types, and
//! every index is in range. Figures are estimates for the whole process (a reader has undone the
//! sampling). Addresses lie inside the calling instruction, which is one byte before the return
//! address.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A text that many parts of a profile share.
pub type Text = Arc<str>;

/// What a figure counts, such as `inuse_space` in `bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleType {
    pub kind: Text,
    pub unit: Text,
}

use mallard_formats::profile;
pub use mallard_formats::profile::{
    ALLOC_OBJECTS, ALLOC_SPACE, BY_STACK_ALONE, FRAG_SPACE, FREED_OBJECTS, INUSE_OBJECTS,
    INUSE_SPACE, LIFETIME, PEAK_SPACE, TYPES, WASTE_SPACE,
};

/// The place of [`INUSE_SPACE`], the last kind of jemalloc's format.
pub const INUSE_SPACE_INDEX: usize = 3;

impl SampleType {
    pub fn new(kind: &str, unit: &str) -> SampleType {
        SampleType {
            kind: kind.into(),
            unit: unit.into(),
        }
    }
}

/// The index of a location in its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocationIndex(pub u32);

/// The index of a mapping in its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingIndex(pub u32);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    pub types: Vec<SampleType>,
    /// The type that a viewer shows first.
    pub default_type: Option<usize>,
    pub samples: Vec<Sample>,
    pub locations: Vec<Location>,
    pub mappings: Vec<Mapping>,
    /// The mean distance of samples, in the unit of `period_type`; 0 or 1 if every block was
    /// recorded.
    pub period: u64,
    pub period_type: Option<SampleType>,
    /// Nanoseconds since 1970 at which the profile was taken.
    pub time_nanos: i64,
    /// The time that cumulative figures cover; 0 if the file does not say.
    pub duration_nanos: i64,
    pub comments: Vec<Text>,
    /// A pattern of functions that a viewer leaves out, with all that they call.
    pub drop_frames: Text,
    pub keep_frames: Text,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The innermost first. Samples of one stack share it.
    pub stack: Arc<[LocationIndex]>,
    /// One for each sample type.
    pub values: Vec<i64>,
    pub labels: Vec<Label>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub key: Text,
    pub value: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelValue {
    Text(Text),
    Number { value: i64, unit: Text },
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelValue::Text(text) => f.write_str(text),
            LabelValue::Number { value, unit } if unit.is_empty() => write!(f, "{value}"),
            LabelValue::Number { value, unit } => write!(f, "{value} {unit}"),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Location {
    pub address: u64,
    pub mapping: Option<MappingIndex>,
    /// The innermost first: all but the last are inlined into the next. Empty without a name.
    pub frames: Vec<Frame>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled, without parameters.
    pub function: Text,
    /// Empty if unknown.
    pub file: Text,
    /// 0 if unknown.
    pub line: u32,
}

/// A range of addresses that holds a part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub limit: u64,
    /// The place of `start` in the file.
    pub file_offset: u64,
    /// Empty for memory without a file, such as that of a JIT compiler.
    pub path: Text,
    /// In hexadecimal; empty if unknown.
    pub build_id: Text,
    /// Whether the file was deleted or replaced while the process ran.
    pub deleted: bool,
}

impl Mapping {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        if name.is_empty() { "[anon]" } else { name }
    }
}

/// What the allocator itself counted as in use, and how long before the profile: in a comment
/// `stats.allocated: BYTES, NANOSECONDS ns before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    pub bytes: u64,
    /// Zero if it is not known.
    pub age: Duration,
}

impl fmt::Display for Allocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allocated { bytes, age } = self;
        write!(f, "stats.allocated: {bytes}, {} ns before", age.as_nanos())
    }
}

impl Allocated {
    fn parse(comment: &str) -> Option<Allocated> {
        let figures = comment.strip_prefix("stats.allocated: ")?;
        let (bytes, age) = figures.strip_suffix(" ns before")?.split_once(", ")?;
        Some(Allocated {
            bytes: bytes.parse().ok()?,
            age: Duration::from_nanos(age.parse().ok()?),
        })
    }
}

impl Profile {
    /// The place of the type of this kind.
    pub fn type_of_kind(&self, kind: &str) -> Option<usize> {
        self.types.iter().position(|t| &*t.kind == kind)
    }

    /// What the allocator counted as in use, if the profile was read from a process or a core file
    /// that has a page of statistics.
    pub fn allocated(&self) -> Option<Allocated> {
        self.comments.iter().find_map(|it| Allocated::parse(it))
    }

    /// Whether what is in use is known by call stack alone: without sizes, threads, arenas and what
    /// fragmentation takes.
    pub fn is_by_stack_alone(&self) -> bool {
        self.comments
            .iter()
            .any(|it| &**it == profile::BY_STACK_ALONE)
    }

    /// What a reader of the file has to know of it, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let note = "the file has memory in use by call stack alone, without sizes, threads, arenas and fragmentation: it has over 170,000 samples, or shows changes";
        self.is_by_stack_alone()
            .then(|| note.to_owned())
            .into_iter()
            .collect()
    }

    /// The sum of a type over all samples.
    pub fn total(&self, of_type: usize) -> i128 {
        self.samples
            .iter()
            .map(|sample| i128::from(sample.values[of_type]))
            .sum()
    }

    pub fn location(&self, index: LocationIndex) -> &Location {
        &self.locations[index.0 as usize]
    }

    pub fn mapping(&self, index: MappingIndex) -> &Mapping {
        &self.mappings[index.0 as usize]
    }

    /// How a location without a name is shown: `libfoo.so+0x1234`, by its place in the file.
    pub fn unnamed(&self, location: &Location) -> String {
        match location.mapping.map(|index| self.mapping(index)) {
            Some(mapping) => {
                let offset = location
                    .address
                    .wrapping_sub(mapping.start)
                    .wrapping_add(mapping.file_offset);
                format!("{}+{offset:#x}", mapping.name())
            }
            None => format!("{:#x}", location.address),
        }
    }
}

/// Gives out one [`Text`] for equal texts.
#[derive(Debug, Default)]
pub struct Texts {
    known: HashMap<Text, ()>,
}

impl Texts {
    pub fn get(&mut self, text: &str) -> Text {
        if let Some((known, ())) = self.known.get_key_value(text) {
            return Arc::clone(known);
        }
        let new: Text = text.into();
        self.known.insert(Arc::clone(&new), ());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_name_is_told_by_its_place_in_the_file() {
        let profile = Profile {
            mappings: vec![Mapping {
                start: 0x7000,
                limit: 0x9000,
                file_offset: 0x1000,
                path: "/usr/lib/libfoo.so".into(),
                ..Mapping::default()
            }],
            ..Profile::default()
        };
        let mut location = Location {
            address: 0x7234,
            mapping: Some(MappingIndex(0)),
            frames: Vec::new(),
        };
        assert_eq!(profile.unnamed(&location), "libfoo.so+0x1234");
        location.mapping = None;
        assert_eq!(profile.unnamed(&location), "0x7234");
    }

    #[test]
    fn what_was_counted_is_told_by_a_comment() {
        let allocated = Allocated {
            bytes: 4096,
            age: Duration::from_millis(3),
        };
        let profile = Profile {
            comments: vec!["another".into(), allocated.to_string().into()],
            ..Profile::default()
        };
        assert_eq!(profile.allocated(), Some(allocated));
    }
}
