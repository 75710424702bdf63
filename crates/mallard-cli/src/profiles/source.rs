//! Where profiles come from: files, processes and core files.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use mallard_profile::model::{Frame, Location, Mapping, MappingIndex, Profile, Text};
use mallard_profile::names::{self, NamingOutcome};
use mallard_profile::process::live::{self, Process};
use mallard_profile::process::{self, Reading, core};
use mallard_profile::read;
use mallard_profile::show::Named;
use mallard_profile::view::since::since;

use crate::options::search::SearchOptions;
use crate::terminal::progress::Spinner;

/// A profile that has its names.
pub struct Loaded {
    pub name: String,
    pub profile: Profile,
    pub outcome: NamingOutcome,
    /// Notes on the profile.
    pub notes: Vec<String>,
}

impl Loaded {
    pub fn named(&self) -> Named<'_> {
        Named {
            name: &self.name,
            profile: &self.profile,
        }
    }

    fn of(reading: Reading, process: Option<u32>, search: &SearchOptions) -> Loaded {
        let Reading {
            mut profile,
            name,
            pid,
            notes,
        } = reading;
        let outcome = find_names(&mut profile, &name, pid, process, search);
        Loaded {
            name,
            profile,
            outcome,
            notes,
        }
    }
}

/// Reads a file, a process or a core file.
pub fn load(subject: &Path, search: &SearchOptions) -> Result<Loaded> {
    let (reading, process) = read_one(subject, search)?;
    Ok(Loaded::of(reading, process, search))
}

/// Reads a profile without looking for names; with the number of the process if it runs.
pub fn read_one(subject: &Path, search: &SearchOptions) -> Result<(Reading, Option<u32>)> {
    if let Some(pid) = process_of(subject)? {
        return Ok((Process::open(pid)?.read()?, Some(pid)));
    }
    let shown = subject.display();
    if is_address(subject) {
        return Err(anyhow!(
            "{shown} is an address, not a file: `curl -s {shown} | mallard profile -` reads it"
        ));
    }
    if subject != Path::new("-") {
        let core = core::open(subject, search.root.as_deref());
        let core = core.map_err(|error| match error {
            process::Error::Io(error) => {
                anyhow::Error::from(error).context(format!("cannot read {shown}"))
            }
            error => anyhow::Error::from(error).context(shown.to_string()),
        })?;
        if let Some(reading) = core {
            return Ok((reading, None));
        }
    }
    let bytes = if subject == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(subject)
    };
    let bytes = bytes.with_context(|| format!("cannot read {shown}"))?;
    let profile = read::profile(&bytes).with_context(|| shown.to_string())?;
    let name = match subject.file_name() {
        Some(name) if subject != Path::new("-") => name.to_string_lossy().into_owned(),
        _ => "standard input".to_owned(),
    };
    let reading = Reading {
        notes: profile.notes(),
        pid: pid_of(&name),
        profile,
        name,
    };
    Ok((reading, None))
}

/// Reads a process twice.
pub fn twice(subject: &Path, apart: Duration, search: &SearchOptions) -> Result<(Loaded, Loaded)> {
    let pid = process_of(subject)?.ok_or_else(|| {
        anyhow!(
            "--for reads a process, and {} is not the number of one; --diff compares files",
            subject.display()
        )
    })?;
    let process = Process::open(pid)?;
    let mut before = process.read()?;
    {
        let spinner = Spinner::new();
        spinner.show(format!("waiting {}", humantime::format_duration(apart)));
        thread::sleep(apart);
    }
    let after = Loaded::of(process.read()?, Some(pid), search);
    // Most addresses have their names by now.
    let known: HashMap<u64, _> = after
        .profile
        .locations
        .iter()
        .map(|location| (location.address, &location.frames))
        .collect();
    for location in &mut before.profile.locations {
        if let Some(&frames) = known.get(&location.address) {
            location.frames.clone_from(frames);
        }
    }
    Ok((Loaded::of(before, Some(pid), search), after))
}

/// Names of addresses that are known already, each with the code that lay there.
#[derive(Debug, Default)]
pub struct Names(HashMap<u64, (Mapping, Vec<Frame>)>);

impl Names {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The names of a profile's addresses. Code without a file may be another by the next time, as
    /// that of a JIT compiler is.
    fn of(profile: &Profile) -> Names {
        let named = profile.locations.iter().filter_map(|location| {
            let mapping = profile.mapping(location.mapping?);
            let is_lasting = mapping.path.starts_with('/') && !mapping.path.starts_with("/memfd:");
            let known = (mapping.clone(), location.frames.clone());
            is_lasting.then_some((location.address, known))
        });
        Names(named.collect())
    }

    /// Gives names to the addresses that lie in the same code as before.
    fn give(&self, profile: &mut Profile) {
        for location in &mut profile.locations {
            if let (Some(mapping), Some((code, frames))) =
                (location.mapping, self.0.get(&location.address))
                && profile.mappings[mapping.0 as usize] == *code
            {
                location.frames.clone_from(frames);
            }
        }
    }
}

/// Reads a running process. Its addresses have no names.
///
/// # Errors
/// The process cannot be read, or was never sampled.
pub fn unnamed(pid: u32) -> Result<Profile, process::Error> {
    Ok(Process::open(pid)?.read()?.profile)
}

/// Reads a running process, and gives names to what `known` has none for; that has all names then.
/// With an earlier profile, it returns what has changed since.
///
/// # Errors
/// The process cannot be read, or was never sampled.
pub fn running(
    pid: u32,
    search: &names::Options,
    known: &mut Names,
    before: Option<&Profile>,
) -> Result<Profile, process::Error> {
    let Reading {
        mut profile,
        pid: inside,
        ..
    } = Process::open(pid)?.read()?;
    if let Some(before) = before {
        profile = since(before, profile);
    }
    known.give(&mut profile);
    names::name(&mut profile, &options_for(pid, inside, search));
    *known = Names::of(&profile);
    Ok(profile)
}

/// The functions at addresses of a running process, which need not run on Mallard.
///
/// # Errors
/// The process is gone, or may not be read.
pub fn functions(
    pid: u32,
    addresses: &[u64],
    search: &names::Options,
) -> Result<Vec<Option<Text>>, process::Error> {
    let mappings = live::code(pid)?;
    let location = |&address: &u64| {
        let contains = |mapping: &Mapping| (mapping.start..mapping.limit).contains(&address);
        let mapping = mappings.iter().position(contains);
        Location {
            address,
            mapping: mapping.map(|index| MappingIndex(index as u32)),
            frames: Vec::new(),
        }
    };
    let mut profile = Profile {
        locations: addresses.iter().map(location).collect(),
        ..Profile::default()
    };
    profile.mappings = mappings;
    let inside = mallard_procfs::about::number_inside(pid);
    names::name(&mut profile, &options_for(pid, inside, search));
    // The last one is the function whose code it is; others were inlined into it.
    let function = |location: &Location| location.frames.last().map(|frame| frame.function.clone());
    Ok(profile.locations.iter().map(function).collect())
}

/// Where the names of a process are that runs, and has this number in its own container.
fn options_for(pid: u32, inside: Option<u32>, search: &names::Options) -> names::Options {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    names::Options {
        root: Some(proc.join("root")),
        pid: inside,
        process: Some(proc),
        fetcher: fetcher(),
        ..search.clone()
    }
}

/// Whether a subject is the address of a server.
fn is_address(subject: &Path) -> bool {
    let text = subject.to_string_lossy();
    ["http://", "https://"]
        .iter()
        .any(|start| text.starts_with(start))
        && !subject.exists()
}

/// The process that a number means.
fn process_of(subject: &Path) -> Result<Option<u32>> {
    let text = subject.to_string_lossy();
    if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ok(None);
    }
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.map(Some)
        .ok_or_else(|| anyhow!("there is no process {text}"))
}

/// Gives names to the addresses of a profile.
pub fn find_names(
    profile: &mut Profile,
    name: &str,
    pid: Option<u32>,
    process: Option<u32>,
    search: &SearchOptions,
) -> NamingOutcome {
    let spinner = Spinner::new();
    spinner.show(format!("finding names for {name}"));
    let proc = process.map(|pid| PathBuf::from(format!("/proc/{pid}")));
    let own_root = proc.as_ref().map(|proc| proc.join("root"));
    names::name(
        profile,
        &names::Options {
            root: search.root.clone().or(own_root),
            debug_folders: search.debug_folders.clone(),
            files: search.binaries.clone(),
            pid: search.pid.or(pid),
            process: proc,
            fetcher: fetcher(),
        },
    )
}

/// debuginfod's client, where the user has named servers for it.
fn fetcher() -> Option<PathBuf> {
    let servers = std::env::var_os("DEBUGINFOD_URLS").unwrap_or_default();
    (!servers.is_empty()).then(|| "debuginfod-find".into())
}

/// The process in a name as Mallard and jemalloc give it: `PREFIX.PID.NUMBER.KIND.heap`.
pub fn pid_of(name: &str) -> Option<u32> {
    let mut parts = name.rsplit('.');
    let (_heap, _kind, _number) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_known_by_the_profile_s_name() {
        assert_eq!(pid_of("jeprof.4711.0.f.heap"), Some(4711));
        assert_eq!(pid_of("my.app.4711.12.i3.heap"), Some(4711));
        assert_eq!(pid_of("heap.pb.gz"), None);
        assert_eq!(pid_of("x.heap"), None);
    }

    #[test]
    fn names_are_kept_for_code_that_stays_where_it_is() {
        let profile = |paths: [&str; 2], names: [&str; 2]| {
            let mapping = |(path, start): (&str, u64)| Mapping {
                start,
                limit: start + 0x1000,
                path: path.into(),
                ..Mapping::default()
            };
            let location = |(index, name): (u32, &str)| Location {
                address: 0x1000 * u64::from(index + 1),
                mapping: Some(MappingIndex(index)),
                frames: vec![Frame {
                    function: name.into(),
                    ..Frame::default()
                }],
            };
            Profile {
                mappings: paths
                    .into_iter()
                    .zip([0x1000, 0x2000])
                    .map(mapping)
                    .collect(),
                locations: (0..).zip(names).map(location).collect(),
                ..Profile::default()
            }
        };
        let known = Names::of(&profile(["/bin/app", ""], ["main", "compiled"]));
        assert_eq!(known.len(), 1);
        let named = |paths| {
            let mut profile = profile(paths, ["", ""]);
            known.give(&mut profile);
            let name = |location: &Location| location.frames[0].function.to_string();
            profile.locations.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(named(["/bin/app", ""]), ["main", ""]);
        assert_eq!(named(["/bin/other", ""]), ["", ""], "another program");
    }

    #[test]
    fn a_number_is_a_process() {
        let process = |text: &str| process_of(Path::new(text)).map_err(|e| e.to_string());
        assert_eq!(process("4711"), Ok(Some(4711)));
        assert_eq!(process("./4711"), Ok(None));
        assert_eq!(process("core.4711"), Ok(None));
        let none = "there is no process ";
        assert_eq!(process("0"), Err(format!("{none}0")));
        assert_eq!(process("99999999999"), Err(format!("{none}99999999999")));
    }
}
