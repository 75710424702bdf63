//! Names for frames that are given as a file with an offset in it, as reports of a process have
//! them.

use std::collections::HashMap;

use mallard_profile::model::{Frame, Location, Mapping, MappingIndex, Profile};

use super::source;
use crate::options::search::SearchOptions;

/// A return address: its offset in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub path: String,
    pub offset: u64,
    /// In hexadecimal; empty if unknown.
    pub build_id: String,
}

/// The functions at places, the innermost first: all but the last are inlined into the next.
pub type Names = HashMap<Place, Vec<Frame>>;

/// Looks up names.
pub fn named(places: impl Iterator<Item = Place>, search: &SearchOptions) -> Names {
    /// A page of the file stands for the mapping that it was in.
    const PAGE: u64 = 4096;
    const DELETED: &str = " (deleted)";
    let mut profile = Profile::default();
    let mut mappings = HashMap::new();
    let mut locations = HashMap::new();
    for place in places {
        if locations.contains_key(&place) {
            continue;
        }
        // The call is before the return address.
        let address = place.offset.saturating_sub(1);
        let page = address & !(PAGE - 1);
        let key = (place.path.clone(), place.build_id.clone(), page);
        let mapping = *mappings.entry(key).or_insert_with(|| {
            profile.mappings.push(Mapping {
                start: page,
                limit: page + PAGE,
                file_offset: page,
                path: place.path.trim_end_matches(DELETED).into(),
                build_id: place.build_id.as_str().into(),
                deleted: place.path.ends_with(DELETED),
            });
            MappingIndex(profile.mappings.len() as u32 - 1)
        });
        locations.insert(place, profile.locations.len());
        profile.locations.push(Location {
            address,
            mapping: Some(mapping),
            frames: Vec::new(),
        });
    }
    source::find_names(&mut profile, "reports", None, None, search);
    let take = |(place, index): (Place, usize)| {
        let frames = std::mem::take(&mut profile.locations[index].frames);
        (place, frames)
    };
    locations.into_iter().map(take).collect()
}
