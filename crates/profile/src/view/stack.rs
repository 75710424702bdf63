//! The frames of a sample's stack, and the site among them.

use std::collections::HashMap;
use std::sync::Arc;

use super::kind::{self, Kind};
use crate::model::{Frame, LocationIndex, Mapping, Profile, Text, Texts};

/// One function in a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<'p> {
    /// Without a name: the file and the place in it.
    pub name: Text,
    pub is_named: bool,
    /// Empty if unknown.
    pub file: &'p str,
    /// 0 if unknown.
    pub line: u32,
    /// Whether it is inlined into the next one.
    pub inlined: bool,
    pub mapping: Option<&'p Mapping>,
    /// Where it comes from: a place in the stack, and one in the location's frames.
    from: (usize, usize),
    kind: Kind,
}

impl Step<'_> {
    /// Whether it is code of a standard library or before `main`.
    pub fn is_library(&self) -> bool {
        matches!(self.kind, Kind::Wrapper | Kind::Start)
    }
}

/// Turns stacks into steps. It remembers names and what kind of function each is.
#[derive(Debug)]
pub struct Stacks<'p> {
    profile: &'p Profile,
    kinds: HashMap<(Text, Text), Kind>,
    texts: Texts,
}

/// A stack without the allocator's frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps<'p> {
    /// The innermost first.
    pub all: Vec<Step<'p>>,
    /// The place of the site; none in an empty stack.
    pub site: Option<usize>,
}

impl<'p> Stacks<'p> {
    pub fn new(profile: &'p Profile) -> Stacks<'p> {
        Stacks {
            profile,
            kinds: HashMap::new(),
            texts: Texts::default(),
        }
    }

    pub fn steps(&mut self, stack: &[LocationIndex]) -> Steps<'p> {
        let mut all = Vec::new();
        for (place, &index) in stack.iter().enumerate() {
            self.add(place, index, &mut all);
        }
        // The allocator's own frames, and what lies inside them.
        let inner = all.iter().rposition(|step| step.kind == Kind::Allocator);
        let inner = inner.map_or(0, |place| place + 1);
        // A stack of the allocator alone is its own.
        if inner < all.len() {
            all.drain(..inner);
        }
        let site = all.iter().position(|step| step.kind == Kind::Other);
        let site = site.or_else(|| all.iter().position(|step| step.kind != Kind::Start));
        let site = site.or(if all.is_empty() { None } else { Some(0) });
        Steps { all, site }
    }

    fn add(&mut self, from: usize, index: LocationIndex, steps: &mut Vec<Step<'p>>) {
        let location = self.profile.location(index);
        let mapping = location.mapping.map(|index| self.profile.mapping(index));
        if location.frames.is_empty() {
            let name = self.texts.get(&self.profile.unnamed(location));
            steps.push(Step {
                name,
                is_named: false,
                file: "",
                line: 0,
                inlined: false,
                mapping,
                from: (from, 0),
                kind: mapping.map_or(Kind::Other, |mapping| kind::of_file(mapping.name())),
            });
            return;
        }
        let last = location.frames.len() - 1;
        for (place, frame) in location.frames.iter().enumerate() {
            steps.push(Step {
                name: Arc::clone(&frame.function),
                is_named: true,
                file: &frame.file,
                line: frame.line,
                inlined: place < last,
                mapping,
                from: (from, place),
                kind: self.kind(frame),
            });
        }
    }

    fn kind(&mut self, frame: &Frame) -> Kind {
        let key = (Arc::clone(&frame.function), Arc::clone(&frame.file));
        let kind = self.kinds.entry(key);
        *kind.or_insert_with(|| kind::of_function(&frame.function, &frame.file))
    }
}

impl<'p> Steps<'p> {
    /// Where the stack starts without the allocator's frames: a place in it, and how many frames of
    /// the location there are left out.
    pub fn start(&self) -> (usize, usize) {
        self.all.first().map_or((0, 0), |step| step.from)
    }

    pub fn site(&self) -> Option<&Step<'p>> {
        self.site.map(|place| &self.all[place])
    }

    /// The callers of the site that are of use: none from before `main`, no standard library in
    /// between, no function twice in a row.
    pub fn callers(&self) -> Vec<&Step<'p>> {
        let Some(site) = self.site else {
            return Vec::new();
        };
        let mut callers: Vec<&Step<'p>> = Vec::new();
        for step in &self.all[site + 1..] {
            let before = callers.last().copied().unwrap_or(&self.all[site]);
            if step.kind == Kind::Other && step.name != before.name {
                callers.push(step);
            }
        }
        // What lies outside `main` started the program.
        if let Some(main) = callers.iter().position(|step| &*step.name == "main") {
            callers.truncate(main + 1);
        }
        callers
    }
}

/// The last two parts of a path: `src/cache.rs`.
pub fn short_path(path: &str) -> &str {
    let mut slashes = path.rmatch_indices('/').map(|(place, _)| place);
    slashes.nth(1).map_or(path, |place| &path[place + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Location, MappingIndex};

    /// A profile whose locations have these frames, and the stack of all of them.
    fn stack(locations: &[&[&str]]) -> (Profile, Vec<LocationIndex>) {
        let locations: Vec<Location> = locations
            .iter()
            .map(|functions| Location {
                frames: functions
                    .iter()
                    .map(|function| Frame {
                        function: (*function).into(),
                        ..Frame::default()
                    })
                    .collect(),
                ..Location::default()
            })
            .collect();
        let all = (0..locations.len() as u32).map(LocationIndex).collect();
        let profile = Profile {
            locations,
            ..Profile::default()
        };
        (profile, all)
    }

    fn site_and_callers(locations: &[&[&str]]) -> (String, Vec<String>) {
        let (profile, all) = stack(locations);
        let steps = Stacks::new(&profile).steps(&all);
        let callers = steps
            .callers()
            .iter()
            .map(|step| step.name.to_string())
            .collect();
        (
            steps
                .site()
                .map_or_else(String::new, |step| step.name.to_string()),
            callers,
        )
    }

    #[test]
    fn the_site_is_the_first_frame_of_the_program() {
        let (site, callers) = site_and_callers(&[
            &["prof_backtrace"],
            &["malloc"],
            &["operator new"],
            &["std::allocator<char>::allocate", "std::string::_M_create"],
            &["cache::key", "cache::put"],
            &["std::for_each"],
            &["api::serve"],
            &["api::serve"],
            &["main"],
            &["__libc_start_call_main"],
            &["_start"],
        ]);
        assert_eq!(site, "cache::key");
        assert_eq!(callers, ["cache::put", "api::serve", "main"]);
    }

    #[test]
    fn a_stack_of_wrappers_alone_has_the_innermost_as_its_site() {
        assert_eq!(
            site_and_callers(&[&["malloc"], &["std::vector<int>::resize"], &["_start"]]).0,
            "std::vector<int>::resize"
        );
        assert_eq!(site_and_callers(&[&["malloc"], &["_start"]]).0, "_start");
        assert_eq!(site_and_callers(&[&["malloc"]]).0, "malloc");
        assert_eq!(site_and_callers(&[]).0, "");
    }

    #[test]
    fn an_allocator_without_names_is_passed_over_by_its_file() {
        let (mut profile, all) = stack(&[&[], &["malloc"], &[], &["work"]]);
        profile.mappings = vec![Mapping {
            path: "/usr/lib/libjemalloc.so.2".into(),
            ..Mapping::default()
        }];
        for index in [0, 2] {
            profile.locations[index].mapping = Some(MappingIndex(0));
        }
        let steps = Stacks::new(&profile).steps(&all);
        assert_eq!(&*steps.site().unwrap().name, "work");
    }

    #[test]
    fn paths_keep_their_last_two_parts() {
        assert_eq!(short_path("/home/me/src/cache.rs"), "src/cache.rs");
        assert_eq!(short_path("cache.rs"), "cache.rs");
    }
}
