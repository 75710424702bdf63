//! The names of all allocators and the way from a name to an allocator that is ready to use.

use std::path::PathBuf;

use crate::{Allocator, Error, Kind, Progress};

/// Where things are looked for; every field has a default.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The workspace of the peers (`bench/peers`). Default: the variable `MALLARD_PEERS`, else the
    /// checkout that the lab was built from.
    pub peers: Option<PathBuf>,
    /// Where the carried library and the built peers are kept. Default:
    /// `$XDG_CACHE_HOME/mallard`, else `~/.cache/mallard`, else a folder of the temporary one.
    pub cache: Option<PathBuf>,
}

/// All allocators that can be asked for by name, in the order in which tables show them.
#[derive(Debug)]
pub struct Catalog {
    settings: Settings,
    entries: Vec<(String, Kind)>,
}

/// Why an allocator cannot be had here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub name: String,
    /// One sentence.
    pub reason: String,
    /// How to get it, in a sentence; empty where there is no advice.
    pub advice: String,
    /// The whole output of a build that failed.
    pub log: Option<PathBuf>,
}

/// What is known of an allocator without building anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Found and seen serving `malloc`.
    Ready(Allocator),
    /// Its sources are at hand: it will be built when it is first asked for. The text says from
    /// what, such as `builds on first use from tikv-jemalloc-sys 0.7.1`.
    Buildable(String),
    Unavailable(Unavailable),
}

impl Catalog {
    pub fn new(settings: Settings) -> Catalog {
        let _ = &settings.cache;
        Catalog {
            settings,
            entries: Vec::new(),
        }
    }

    /// Adds the user's own library, given as `NAME=/path/lib.so`: the file must be a shared object
    /// for this machine that defines `malloc` and `free`. Returns the name.
    pub fn add_custom(&mut self, spec: &str) -> Result<String, Error> {
        Err(Error::CustomSyntax {
            spec: spec.to_owned(),
        })
    }

    /// Every name, in the order of the tables: glibc, mallard, the peers, the user's own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let _ = &self.settings.peers;
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// Checks names given by the user and puts them in the order of the tables, each once. The
    /// word `all` stands for every name.
    pub fn select<S: AsRef<str>>(&self, words: &[S]) -> Result<Vec<String>, Error> {
        let _ = words;
        Ok(self.names().map(str::to_owned).collect())
    }

    /// What is known of `name` without building anything. Runs the probe on a library that is there.
    pub fn look(&self, name: &str) -> Result<Standing, Error> {
        Err(Error::CustomSyntax {
            spec: name.to_owned(),
        })
    }

    /// Makes `name` ready: builds it where need be and probes it. The outer error is a name that
    /// does not exist; the inner one an allocator that cannot be had here.
    pub fn prepare(
        &self,
        name: &str,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Result<Allocator, Unavailable>, Error> {
        let _ = progress;
        Err(Error::CustomSyntax {
            spec: name.to_owned(),
        })
    }
}
