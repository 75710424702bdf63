//! Answers from a profile: which figures it has, which code they belong to, how they changed.
//!
//! - [`View`] is a question, such as "what was live at the peak", and finds the sample types that
//!   answer it.
//! - [`stack`] turns a sample's stack into frames and finds the *site*: the innermost frame that is
//!   neither the allocator nor a container's inside, by the names in [`kind`].
//! - [`name`] shortens names for people.
//! - [`rows`] sums samples up by site, line, module, size or thread; [`diff`] compares two
//!   profiles.
//! - [`sum`] puts several profiles together, and [`fork`] takes off what a forked process has from
//!   its parent.
//! - [`summary`] has the totals and how far they may be off; [`tree`] is the data of flame graphs.
//! - [`since`] subtracts an earlier profile of the same process.
//! - [`trim`] takes the allocator's frames away for other viewers.

pub mod diff;
pub mod fork;
mod kind;
pub mod name;
pub mod rows;
pub mod since;
pub mod stack;
pub mod sum;
pub mod summary;
pub mod tree;
pub mod trim;

use crate::model::{
    ALLOC_OBJECTS, ALLOC_SPACE, FRAG_SPACE, FREED_OBJECTS, INUSE_OBJECTS, INUSE_SPACE, LIFETIME,
    PEAK_SPACE, Profile, WASTE_SPACE,
};

/// What a person may ask of a heap profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum View {
    Live,
    Peak,
    Allocs,
    Waste,
    Frag,
    Lifetime,
}

/// The sample types that answer a [`View`], by their places in the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTypes {
    /// Bytes; for lifetimes the sum of nanoseconds.
    pub main: usize,
    pub blocks: Option<usize>,
}

/// The profile cannot answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the profile has no figures of {what} ({kind}); it has {has}; {advice}")]
pub struct Absent {
    what: &'static str,
    kind: &'static str,
    has: String,
    advice: &'static str,
}

impl View {
    pub const ALL: [View; 6] = [
        View::Live,
        View::Peak,
        View::Allocs,
        View::Waste,
        View::Frag,
        View::Lifetime,
    ];

    /// The word for it in tables, in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            View::Live => "live",
            View::Peak => "peak",
            View::Allocs => "allocated",
            View::Waste => "waste",
            View::Frag => "frag",
            View::Lifetime => "lifetime",
        }
    }

    fn what(self) -> &'static str {
        match self {
            View::Live => "live memory",
            View::Peak => "the peak",
            View::Allocs => "all allocations",
            View::Waste => "waste by rounding up",
            View::Frag => "fragmentation",
            View::Lifetime => "lifetimes",
        }
    }

    /// The kinds of the main figure, Mallard's first, and of the blocks that belong to it.
    fn kinds(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            View::Live => (&[INUSE_SPACE, "space"], &[INUSE_OBJECTS, "objects"]),
            View::Peak => (&[PEAK_SPACE], &["peak_objects"]),
            View::Allocs => (&[ALLOC_SPACE], &[ALLOC_OBJECTS]),
            View::Waste => (&[WASTE_SPACE], &[INUSE_OBJECTS, "objects"]),
            View::Frag => (&[FRAG_SPACE], &[INUSE_OBJECTS, "objects"]),
            View::Lifetime => (&[LIFETIME], &[FREED_OBJECTS]),
        }
    }

    fn advice(self, profile: &Profile) -> &'static str {
        match self {
            View::Frag if profile.is_by_stack_alone() => {
                "the process had too many samples to write them; sample more rarely (lg_prof_sample)"
            }
            View::Live => "it is not a heap profile",
            View::Allocs => {
                "files of jemalloc's format have them with prof_accum:true, Mallard's of pprof's format always"
            }
            View::Peak | View::Waste | View::Lifetime | View::Frag => {
                "Mallard writes them with prof_format:pprof"
            }
        }
    }

    /// The figures that answer this.
    ///
    /// # Errors
    /// The profile has none. Cumulative figures that are all 0 beside live blocks were not
    /// recorded; nor was fragmentation where what is in use is known by call stack alone.
    pub fn figures(self, profile: &Profile) -> Result<SampleTypes, Absent> {
        let (main, blocks) = self.kinds();
        let place = |kinds: &[&str]| kinds.iter().find_map(|kind| profile.type_of_kind(kind));
        let absent = || Absent {
            what: self.what(),
            kind: main[0],
            has: kinds_of(profile),
            advice: self.advice(profile),
        };
        let figures = SampleTypes {
            main: place(main).ok_or_else(absent)?,
            blocks: place(blocks),
        };
        if self == View::Frag && profile.is_by_stack_alone() {
            return Err(absent());
        }
        let recorded = self != View::Allocs
            || profile.samples.iter().any(|s| s.values[figures.main] != 0)
            || profile
                .samples
                .iter()
                .all(|s| s.values.iter().all(|&v| v == 0));
        recorded.then_some(figures).ok_or_else(absent)
    }

    /// The views that the profile can answer.
    pub fn of(profile: &Profile) -> Vec<(View, SampleTypes)> {
        let views = View::ALL.into_iter();
        views
            .filter_map(|view| Some((view, view.figures(profile).ok()?)))
            .collect()
    }
}

fn kinds_of(profile: &Profile) -> String {
    let kinds: Vec<&str> = profile
        .types
        .iter()
        .enumerate()
        .filter(|(place, _)| profile.samples.iter().any(|s| s.values[*place] != 0))
        .map(|(_, of_type)| &*of_type.kind)
        .collect();
    if kinds.is_empty() {
        return "no samples".to_owned();
    }
    kinds.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LocationIndex, Sample, SampleType};

    #[test]
    fn fragmentation_that_was_not_told_is_absent() {
        let mut profile = Profile {
            types: vec![
                SampleType::new("inuse_space", "bytes"),
                SampleType::new("frag_space", "bytes"),
            ],
            samples: vec![Sample {
                stack: [LocationIndex(0)].into(),
                values: vec![100, 0],
                labels: Vec::new(),
            }],
            ..Profile::default()
        };
        assert!(View::Frag.figures(&profile).is_ok() && profile.notes().is_empty());
        profile.comments = vec!["in use by call stack alone".into()];
        assert!(View::Live.figures(&profile).is_ok());
        let absent = View::Frag.figures(&profile).unwrap_err().to_string();
        assert!(absent.contains("too many samples"), "{absent}");
        assert_eq!(profile.notes().len(), 1);
    }
}
