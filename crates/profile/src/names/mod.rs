//! Names for addresses: functions with those inlined into them, files and lines.
//!
//! [`name`] goes through the modules of a profile one by one, so that only one is open at a time.
//! For each it does this:
//!
//! 1. [`search`] finds the file, under another root if the process ran in a container, and compares
//!    its build id with that in the profile. It finds the file with debug information: the same
//!    one, or a separate one by build id or by `.gnu_debuglink`.
//! 2. [`place`] turns addresses of the process into those of the file.
//! 3. [`dwarf`] looks them up in the order of addresses, [`symbols`] has the rest.
//!
//! Memory without a file may be code of a JIT compiler ([`jit`]), `[vdso]` is the kernel's
//! ([`vdso`]). [`demangling`] makes names readable. What lacked names, and why, is in
//! [`NamingOutcome`].

mod demangling;
mod dwarf;
mod file;
mod jit;
mod place;
mod search;
mod symbols;
mod vdso;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::{Frame, Mapping, Profile, Sample, Texts};
use file::{Arena, File};
use search::Search;

pub use demangling::demangled;
pub use file::build_id_of;

/// Where to look for files.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The root of the file system that the paths in the profile mean: `/proc/PID/root` for a
    /// container, or a copy of another machine's.
    pub root: Option<PathBuf>,
    /// Folders with debug files besides `/usr/lib/debug`.
    pub debug_folders: Vec<PathBuf>,
    /// Programs and libraries to use instead of those with the same build id or name.
    pub files: Vec<PathBuf>,
    /// The process, for `/tmp/perf-PID.map`: its number in its own container.
    pub pid: Option<u32>,
    /// The folder in `/proc` of a process that still runs. The system keeps its files there, even
    /// those that were deleted.
    pub process: Option<PathBuf>,
    /// A program that fetches debug files from elsewhere, as `debuginfod-find` does: asked for
    /// `debuginfo BUILD-ID` it prints a path.
    pub fetcher: Option<PathBuf>,
}

/// How well the modules of a profile have got names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamingOutcome {
    /// Modules with less than lines and inlined functions, those with most addresses first.
    pub lacks: Vec<Lack>,
}

/// A module whose names are not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    pub module: String,
    pub why: Why,
    /// How many addresses of the profile lie in it.
    pub addresses: usize,
}

/// Why names are not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The file's build id is not that of the profile, or its code lies elsewhere.
    Replaced,
    /// The process ran a file that had been deleted or replaced, and the profile has no build id to
    /// find it by.
    Deleted,
    Missing(String),
    /// The process ran a file that had been deleted or replaced, and that it still holds.
    Held,
    /// Functions without lines.
    SymbolsOnly,
    /// Exported functions alone.
    ExportsOnly,
    Stripped,
    /// Memory without a file and without a map of a JIT compiler.
    Anonymous,
    /// The program is the only code, and call stacks have one frame there at most: it is static,
    /// and lacks the index of its unwind tables.
    NoUnwindTables,
    Damaged(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let module = &self.module;
        match &self.why {
            Why::Replaced => write!(
                f,
                "{module} was replaced: the file here is not the one that ran"
            ),
            Why::Deleted => write!(f, "{module} was deleted or replaced while the process ran"),
            Why::Held => write!(
                f,
                "{module} was deleted or replaced while the process runs; its names are those of the file that runs"
            ),
            Why::Missing(error) => write!(f, "{module} is not here: {error}"),
            Why::SymbolsOnly => write!(
                f,
                "{module} has a symbol table only: no lines, no inlined functions"
            ),
            Why::ExportsOnly => write!(
                f,
                "{module} is stripped: only exported functions have names"
            ),
            Why::Stripped => write!(f, "{module} is stripped"),
            Why::Anonymous => write!(
                f,
                "memory without a file has no names; a JIT compiler's are read from /tmp/perf-PID.map"
            ),
            Why::NoUnwindTables => write!(
                f,
                "{module} has only the caller of malloc in its call stacks: it is static and lacks the index of its unwind tables; link it with -static-pie, or with -static -Wl,--eh-frame-hdr"
            ),
            Why::Damaged(error) => write!(f, "{module} cannot be read: {error}"),
        }
    }
}

/// Gives names to the locations that have none.
pub fn name(profile: &mut Profile, options: &Options) -> NamingOutcome {
    let search = Search::new(options);
    let mut texts = Texts::default();
    let mut lacks = Vec::new();
    for ((path, build_id), mut locations) in modules(profile) {
        locations.sort_by_key(|&index| profile.locations[index].address);
        let addresses: Vec<Address<'_>> = locations
            .iter()
            .map(|&index| {
                let location = &profile.locations[index];
                let mapping = location
                    .mapping
                    .expect("modules() lists locations of mappings");
                Address {
                    mapping: profile.mapping(mapping),
                    value: location.address,
                }
            })
            .collect();
        let (frames, why) = names_of(&search, options, &addresses, &mut texts);
        if let Some(why) = why {
            lacks.push(Lack {
                module: addresses[0].mapping.name().to_owned(),
                why,
                addresses: addresses.len(),
            });
        }
        debug_assert!(
            frames.len() == locations.len() || frames.is_empty(),
            "{path} {build_id}"
        );
        for (index, frames) in locations.into_iter().zip(frames) {
            profile.locations[index].frames = frames;
        }
    }
    name_more(profile);
    lacks.sort_by(|a, b| b.addresses.cmp(&a.addresses).then(a.module.cmp(&b.module)));
    lacks.extend(without_unwind_tables(profile));
    NamingOutcome { lacks }
}

/// Names the frame that Mallard gives to the stacks that it counts together, for want of room
/// (`prof/sites.rs` there).
fn name_more(profile: &mut Profile) {
    /// The place of a call is one byte before its return address.
    const MORE: u64 = mallard_formats::records::MORE - 1;
    let more = (profile.locations.iter_mut()).filter(|location| location.address == MORE);
    for location in more {
        location.frames = vec![Frame {
            function: "(more)".into(),
            ..Frame::default()
        }];
    }
}

/// A static program whose stacks could not be walked: most of its samples have at most one frame in
/// code, the caller of `malloc`.
fn without_unwind_tables(profile: &Profile) -> Option<Lack> {
    let of_files = profile.mappings.iter();
    let mut of_files = of_files.filter(|mapping| mapping.path.starts_with('/'));
    let program = of_files.next()?;
    let is_alone = of_files.all(|mapping| mapping.path == program.path);
    let is_bare = |sample: &&Sample| {
        let stack = sample.stack.iter();
        let code = stack.filter(|&&index| profile.location(index).mapping.is_some());
        code.count() <= 1
    };
    let bare = profile.samples.iter().filter(is_bare).count();
    (is_alone && 2 * bare > profile.samples.len()).then(|| Lack {
        module: program.name().to_owned(),
        why: Why::NoUnwindTables,
        addresses: 0,
    })
}

/// An address of a process, in its mapping.
#[derive(Debug, Clone, Copy)]
struct Address<'a> {
    mapping: &'a Mapping,
    value: u64,
}

/// The names of some addresses, each the frames of one; empty without any.
type Names = Vec<Vec<Frame>>;

/// The locations without names, by file: several mappings may show one.
fn modules(profile: &Profile) -> BTreeMap<(Arc<str>, Arc<str>), Vec<usize>> {
    let mut modules: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, location) in profile.locations.iter().enumerate() {
        if let (true, Some(mapping)) = (location.frames.is_empty(), location.mapping) {
            let mapping = profile.mapping(mapping);
            let key = (Arc::clone(&mapping.path), Arc::clone(&mapping.build_id));
            modules.entry(key).or_default().push(index);
        }
    }
    modules
}

/// The names of the addresses of one module, which are in ascending order.
fn names_of(
    search: &Search<'_>,
    options: &Options,
    addresses: &[Address<'_>],
    texts: &mut Texts,
) -> (Names, Option<Why>) {
    let module = addresses[0].mapping;
    if &*module.path == "[vdso]" {
        return match vdso::image(module) {
            Some(image) => match File::from_bytes(&image, &Arena::default()) {
                Ok(file) => names_from(&file, None, addresses, texts, Path::new("")),
                Err(error) => (Names::new(), Some(Why::Damaged(error.to_string()))),
            },
            None => (Names::new(), Some(Why::Stripped)),
        };
    }
    // JIT compilers that map their code twice keep it in a memfd.
    if !module.path.starts_with('/') || module.path.starts_with("/memfd:") {
        return match jit::Map::of(options) {
            Some(map) => (map.names(addresses, texts), None),
            None => (Names::new(), Some(Why::Anonymous)),
        };
    }
    let arena = Arena::default();
    let (own, why) = match search.module(module, &arena) {
        Ok(own) => (Some(own), None),
        Err(why) => (None, Some(why)),
    };
    let debug = search.debug_file(module, own.as_ref(), &arena);
    let (own, path) = match own {
        Some((file, path)) => (Some(file), path),
        None => (None, PathBuf::new()),
    };
    match (&own, &debug) {
        (Some(own), debug) => {
            let (names, lack) = names_from(own, debug.as_ref(), addresses, texts, &path);
            let held = module.deleted && options.process.is_some();
            (names, lack.or(held.then_some(Why::Held)))
        }
        (None, Some(debug)) => names_from(debug, None, addresses, texts, &path),
        (None, None) => (Names::new(), why),
    }
}

/// Looks the addresses up in a file and the one with its debug information.
fn names_from(
    own: &File<'_>,
    debug: Option<&File<'_>>,
    addresses: &[Address<'_>],
    texts: &mut Texts,
    path: &Path,
) -> (Names, Option<Why>) {
    let places = place::Places::new(own);
    let probes: Vec<u64> = addresses
        .iter()
        .map(|address| places.of(*address))
        .collect();
    let with_lines = [debug, Some(own)]
        .into_iter()
        .flatten()
        .find(|file| file.has_dwarf());
    let mut damage = None;
    let mut names = vec![Vec::new(); probes.len()];
    if let Some(file) = with_lines
        && let Err(error) = dwarf::look_up(file, path, &probes, &mut names, texts)
    {
        damage = Some(Why::Damaged(error.to_string()));
    }
    let tables = [debug, Some(own)].into_iter().flatten();
    let symbols = symbols::Symbols::of(tables);
    symbols.complete(&probes, &mut names, texts);
    let why = match (with_lines, symbols.kind()) {
        (Some(_), _) => damage,
        (None, symbols::Kind::All) => Some(Why::SymbolsOnly),
        (None, symbols::Kind::Exported) => Some(Why::ExportsOnly),
        (None, symbols::Kind::None) => Some(Why::Stripped),
    };
    (names, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Location, LocationIndex, SampleType};
    use crate::view::View;
    use crate::view::rows::{By, rows};

    #[test]
    fn stacks_that_are_counted_together_have_a_name() {
        let location = |address| Location {
            address,
            ..Location::default()
        };
        let mut profile = Profile {
            types: vec![SampleType::new("inuse_space", "bytes")],
            samples: vec![Sample {
                stack: [LocationIndex(0)].into(),
                values: vec![100],
                labels: Vec::new(),
            }],
            // As the allocator writes them: the highest address, less the byte of the call.
            locations: vec![location(u64::MAX - 1), location(0x1000)],
            ..Profile::default()
        };
        name(&mut profile, &Options::default());
        let figures = View::Live.figures(&profile).unwrap();
        assert_eq!(rows(&profile, figures, By::Function)[0].key, "(more)");
        assert!(profile.locations[1].frames.is_empty());
    }
}
