//! The names of all allocators, and how each becomes an allocator that is ready to use.

use std::path::{Path, PathBuf};

use mallard_formats::variables;

use crate::builds::peers;
use crate::builds::peers::Peer;
use crate::builds::workshop::Workshop;
use crate::cache::files;
use crate::checks::elf::Elf;
use crate::checks::probe::{Served, probe};
use crate::checks::system::System;
use crate::{Allocator, Error, Kind, Progress, State};

/// Where to look; every field has a default.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The workspace of the peers (`bench/peers`). Default: the variable `MALLARD_PEERS`, or else
    /// the checkout from which the lab was built.
    pub peers: Option<PathBuf>,
    /// The folder for the embedded library and the built peers. Default: `$XDG_CACHE_HOME/mallard`,
    /// or else `~/.cache/mallard`, or else a folder in the temporary one.
    pub cache: Option<PathBuf>,
}

/// All allocators by name, in table order.
#[derive(Debug)]
pub struct Catalog {
    settings: Settings,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Glibc,
    Mallard,
    Peer(&'static Peer),
    Custom {
        file: PathBuf,
        environment: Vec<(String, String)>,
        conf_variable: Option<&'static str>,
    },
}

/// Why an allocator is not available here, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub name: String,
    /// One sentence.
    pub reason: String,
    /// A sentence on how to get it; empty if there is no advice.
    pub advice: String,
    /// The complete output of a failed build.
    pub log: Option<PathBuf>,
}

/// What is known about an allocator without building anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Found and verified to serve `malloc`.
    Ready(Allocator),
    /// The sources are available, and the first use builds it. The text names them, as in `builds
    /// on first use from tikv-jemalloc-sys 0.7.1`.
    Buildable(String),
    Unavailable(Unavailable),
}

/// Alternative names.
const ALIASES: [(&str, &str); 4] = [
    ("mimalloc3", "mimalloc"),
    ("libc", "glibc"),
    ("google-tcmalloc", "tcmalloc"),
    ("tcmalloc_minimal", "gperftools"),
];

/// Stands for every name but the optional ones.
const ALL: &str = "all";

impl Catalog {
    pub fn new(settings: Settings) -> Catalog {
        let mut entries = vec![
            Entry {
                name: "glibc".to_owned(),
                origin: Origin::Glibc,
            },
            Entry {
                name: "mallard".to_owned(),
                origin: Origin::Mallard,
            },
        ];
        entries.extend(peers::PEERS.iter().map(|peer| Entry {
            name: peer.name.to_owned(),
            origin: Origin::Peer(peer),
        }));
        Catalog { settings, entries }
    }

    /// Adds the user's own library, specified as `NAME=/path/lib.so[;VARIABLE=VALUE]...`: processes
    /// on it have these variables in their environment, so that one library can take part with
    /// several settings. The file must be a shared object for this machine that defines `malloc`
    /// and `free`. Returns the name.
    pub fn add_custom(&mut self, spec: &str) -> Result<String, Error> {
        let syntax = || Error::CustomSyntax {
            spec: spec.to_owned(),
        };
        let mut parts = spec.split(';');
        let (name, file) = parts
            .next()
            .and_then(|part| part.split_once('='))
            .ok_or_else(syntax)?;
        let fit = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        if name.is_empty() || file.is_empty() || !name.chars().all(fit) {
            return Err(syntax());
        }
        let variable = |part: &str| {
            let (name, value) = part.split_once('=')?;
            (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        };
        let environment = parts
            .map(variable)
            .collect::<Option<_>>()
            .ok_or_else(syntax)?;
        if name == ALL || self.position(name).is_some() {
            return Err(Error::NameTaken {
                name: name.to_owned(),
            });
        }
        let file = std::path::absolute(file).map_err(|_| syntax())?;
        let problem = |problem: String| Error::Library {
            file: file.clone(),
            problem,
        };
        let elf = check_library(&file).map_err(problem)?;
        let conf_variable = elf.defines("mallctl").then_some("MALLOC_CONF");
        let origin = Origin::Custom {
            file,
            environment,
            conf_variable,
        };
        self.entries.push(Entry {
            name: name.to_owned(),
            origin,
        });
        Ok(name.to_owned())
    }

    /// Every name, in table order: glibc, mallard, the peers, the user's own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The names of those that take part unasked.
    pub fn usual_names(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| !self.is_optional(name))
    }

    /// Whether `name` takes part only if it is named.
    pub fn is_optional(&self, name: &str) -> bool {
        (self.entry(name)).is_ok_and(|entry| matches!(entry.origin, Origin::Peer(p) if p.optional))
    }

    /// About how many seconds a build of `name` takes here, once; zero if it is never built.
    pub fn build_seconds(&self, name: &str) -> u32 {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        match self.entry(name).map(|entry| &entry.origin) {
            Ok(Origin::Peer(peer)) => peer.build_cpu_seconds.div_ceil(cpus.min(8)),
            _ => 0,
        }
    }

    /// Checks the user's names and returns them in table order without duplicates. The word `all`
    /// stands for every name but the optional ones.
    pub fn select<S: AsRef<str>>(&self, words: &[S]) -> Result<Vec<String>, Error> {
        let mut wanted = vec![false; self.entries.len()];
        for word in words.iter().map(AsRef::as_ref) {
            if word == ALL {
                for (name, wanted) in self.names().zip(&mut wanted) {
                    *wanted |= !self.is_optional(name);
                }
            } else {
                wanted[self.position(word).ok_or_else(|| self.unknown(word))?] = true;
            }
        }
        let chosen = self.names().zip(wanted).filter(|(_, wanted)| *wanted);
        Ok(chosen.map(|(name, _)| name.to_owned()).collect())
    }

    /// Returns what is known about `name` without building anything. If its library exists, runs
    /// the probe on it.
    pub fn look(&self, name: &str) -> Result<Standing, Error> {
        let entry = self.entry(name)?;
        let Origin::Peer(peer) = entry.origin else {
            return Ok(match self.prepare_ready(entry) {
                Ok(allocator) => Standing::Ready(allocator),
                Err(unavailable) => Standing::Unavailable(unavailable),
            });
        };
        let workshop = self.workshop(peer);
        let found = match &workshop {
            Ok(workshop) => match (workshop.find_built(peer), peer.sources) {
                (Some(built), _) => Some(built),
                (None, Some(sources)) => {
                    let version = workshop.sources_version(peer).unwrap_or_default();
                    let version = version.split('+').next().unwrap_or_default();
                    let from = format!("builds on first use from {sources} {version}");
                    return Ok(Standing::Buildable(from.trim_end().to_owned()));
                }
                (None, None) => peer.find_in_system(),
            },
            Err(_) => peer.find_in_system(),
        };
        let outcome = match found {
            Some(file) => self.probed(entry, Some(file)),
            None => Err(missing(peer, workshop.err().unwrap_or_else(not_installed))),
        };
        Ok(match outcome {
            Ok(allocator) => Standing::Ready(allocator),
            Err(reason) => Standing::Unavailable(reason),
        })
    }

    /// Makes `name` ready: builds it if necessary and probes it. The outer error is an unknown
    /// name, the inner one an allocator that is not available here.
    pub fn prepare(
        &self,
        name: &str,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Result<Allocator, Unavailable>, Error> {
        let entry = self.entry(name)?;
        let allocator = entry.name.as_str();
        let mut report = |state, line: &str| {
            progress(&Progress {
                allocator,
                state,
                line,
            })
        };
        let outcome = match entry.origin {
            Origin::Peer(peer) => self.prepare_peer(entry, peer, &mut report),
            _ => {
                report(State::Probing, "");
                self.prepare_ready(entry)
            }
        };
        match &outcome {
            Ok(allocator) => report(State::Ready, &allocator.version),
            Err(unavailable) => report(State::Unavailable, &unavailable.reason),
        }
        Ok(outcome)
    }

    /// The built peer, or else the system's library. If neither is available, the reasons for both.
    fn prepare_peer(
        &self,
        entry: &Entry,
        peer: &Peer,
        report: &mut dyn FnMut(State, &str),
    ) -> Result<Allocator, Unavailable> {
        let built = self
            .workshop(peer)
            .map_err(|reason| missing(peer, reason))
            .and_then(|shop| {
                if let Some(built) = shop.find_built(peer) {
                    return Ok(built);
                }
                shop.build(peer, &mut |line| report(State::Building, line))
                    .map_err(|failure| Unavailable {
                        log: failure.log,
                        ..missing(peer, failure.reason)
                    })
            });
        let probed = built.and_then(|file| {
            report(State::Probing, "");
            self.probed(entry, Some(file))
        });
        match (probed, peer.find_in_system()) {
            (Err(_), Some(file)) => {
                report(State::Probing, "");
                self.probed(entry, Some(file))
            }
            (outcome, _) => outcome,
        }
    }

    /// Prepares an allocator that need not be built.
    fn prepare_ready(&self, entry: &Entry) -> Result<Allocator, Unavailable> {
        let file = match &entry.origin {
            Origin::Glibc => None,
            Origin::Mallard => Some(self.mallard_library().map_err(|reason| Unavailable {
                name: entry.name.clone(),
                reason,
                advice: "set MALLARD_LIBRARY to the path of a library".to_owned(),
                log: None,
            })?),
            Origin::Custom { file, .. } => Some(file.clone()),
            Origin::Peer(_) => unreachable!("peers are prepared by prepare_peer"),
        };
        self.probed(entry, file)
    }

    /// The library named by `MALLARD_LIBRARY`, or else the embedded one.
    fn mallard_library(&self) -> Result<PathBuf, String> {
        match std::env::var_os("MALLARD_LIBRARY") {
            Some(file) if !file.is_empty() => {
                let file = std::path::absolute(&file).map_err(|error| error.to_string())?;
                check_library(&file).map_err(|problem| {
                    format!("MALLARD_LIBRARY: the library {} {problem}", file.display())
                })?;
                Ok(file)
            }
            _ => files::library(self.settings.cache.as_deref()),
        }
    }

    /// Probes the library `file` and makes an allocator of the result.
    fn probed(&self, entry: &Entry, file: Option<PathBuf>) -> Result<Allocator, Unavailable> {
        let mut allocator = entry.allocator(file);
        match probe(&allocator, self.settings.cache.as_deref()) {
            Ok(served) => {
                allocator.version = version(&allocator, served);
                Ok(allocator)
            }
            Err(reason) => {
                let advice = match entry.origin {
                    Origin::Glibc => "remove other allocators from LD_PRELOAD".to_owned(),
                    _ => String::new(),
                };
                Err(Unavailable {
                    name: entry.name.clone(),
                    reason,
                    advice,
                    log: None,
                })
            }
        }
    }

    fn workshop(&self, peer: &Peer) -> Result<Workshop, String> {
        if peer.sources.is_none() {
            return Err(not_installed());
        }
        Workshop::open(
            self.settings.peers.as_deref(),
            self.settings.cache.as_deref(),
        )
    }

    fn entry(&self, name: &str) -> Result<&Entry, Error> {
        self.position(name)
            .map(|index| &self.entries[index])
            .ok_or_else(|| self.unknown(name))
    }

    fn position(&self, name: &str) -> Option<usize> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name, |(_, name)| name);
        self.entries.iter().position(|entry| entry.name == name)
    }

    fn unknown(&self, name: &str) -> Error {
        let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
        let nearest = self.names().min_by_key(distance);
        // A name with half its letters wrong is not a typo.
        let near = nearest.filter(|known| distance(known) <= known.len() / 2);
        Error::UnknownAllocator {
            name: name.to_owned(),
            nearest: near.map(str::to_owned),
            known: self.names().map(str::to_owned).collect(),
        }
    }
}

impl Entry {
    /// The allocator without its version, which only the probe knows.
    fn allocator(&self, file: Option<PathBuf>) -> Allocator {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let (kind, environment, conf_variable) = match &self.origin {
            Origin::Glibc => (Kind::Glibc, Vec::new(), None),
            Origin::Mallard => (Kind::Mallard, Vec::new(), Some(variables::MALLARD_CONF)),
            Origin::Peer(peer) => {
                let environment = peer.environment.iter().map(owned).collect();
                (Kind::Peer, environment, peer.conf_variable)
            }
            Origin::Custom {
                environment,
                conf_variable,
                ..
            } => (Kind::Custom, environment.clone(), *conf_variable),
        };
        Allocator {
            name: self.name.clone(),
            kind,
            version: String::new(),
            file,
            environment,
            conf_variable: conf_variable.map(str::to_owned),
            options: None,
            base: None,
        }
    }
}

/// The version in the form that the tables show.
fn version(allocator: &Allocator, served: Served) -> String {
    let mut version = match allocator.kind {
        Kind::Glibc => served.libc_version,
        Kind::Mallard => env!("CARGO_PKG_VERSION").to_owned(),
        Kind::AsIs => String::new(),
        Kind::Peer | Kind::Custom => served.library_version.unwrap_or_else(|| {
            // The name of a library's file often ends with its version.
            let real = served.object.canonicalize().unwrap_or(served.object);
            real.file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }),
    };
    // gperftools puts its name before its release number.
    if let Some(release) = version.strip_prefix("gperftools ") {
        version = release.to_owned();
    }
    // jemalloc puts its commit after its release number.
    if let Some((release, _)) = version.split_once("-0-g") {
        version = release.to_owned();
    }
    match served.per_cpu {
        Some(true) => version + ", per-CPU caches",
        Some(false) => version + ", per-thread caches",
        None => version,
    }
}

/// Checks that `file` is a library that can serve `malloc` here.
fn check_library(file: &Path) -> Result<Elf, String> {
    files::preloadable(file)?;
    let elf = Elf::read(file).map_err(|problem| problem.to_string())?;
    if !elf.library {
        return Err("is not a shared library".to_owned());
    }
    let mut functions = ["malloc", "free"].into_iter();
    if let Some(function) = functions.find(|function| !elf.defines(function)) {
        return Err(format!("does not define `{function}`"));
    }
    match System::own().and_then(|system| system.lacks(&elf)) {
        Some(lack) => Err(lack),
        None => Ok(elf),
    }
}

fn missing(peer: &Peer, reason: String) -> Unavailable {
    Unavailable {
        name: peer.name.to_owned(),
        reason,
        advice: peer.advice(),
        log: None,
    }
}

fn not_installed() -> String {
    "it is not installed".to_owned()
}

#[cfg(test)]
mod tests;
