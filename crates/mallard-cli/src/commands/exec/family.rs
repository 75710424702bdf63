//! The last profiles of all processes that `mallard run` starts.
//!
//! With `prof_final:true`, Mallard writes a profile when a process ends in good order. For a process
//! that ends by a signal or by `_exit`, a companion of the program writes it. When the program's own
//! process has ended, the companion lists the profiles.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use mallard_formats::profile::{FINAL_PPROF_SUFFIX, FINAL_TEXT_SUFFIX};
use mallard_procfs::about;
use mallard_profile::model::Profile;
use mallard_profile::process::live::Process;
use mallard_profile::view::View;
use mallard_profile::{read, write};
use mallard_report::units::{ABSENT, bytes};
use mallard_watch::follow::{self, Event};

use crate::profiles::members::{End, program_of};
use crate::profiles::table;

/// What Mallard begins the names of profiles with.
const DEFAULT_PREFIX: &str = "jeprof";

/// How the names of last profiles begin, if the option strings ask for any. Later ones win.
pub fn prefix_of(strings: &[&str]) -> Option<String> {
    let (mut on, mut last, mut prefix) = (false, false, DEFAULT_PREFIX);
    for pair in strings.iter().flat_map(|string| string.split(',')) {
        match pair.trim().split_once(':') {
            Some(("prof", value)) => on = value == "true",
            Some(("prof_final", value)) => last = value == "true",
            Some(("prof_prefix", value)) => prefix = value,
            _ => {}
        }
    }
    (on && last && !prefix.is_empty()).then(|| prefix.to_owned())
}

/// Follows the program that this process runs next. Where the system refuses it, processes write
/// what they write by themselves.
pub fn follow(prefix: String) {
    let mut family = Family {
        prefix,
        seen: Vec::new(),
        running: HashMap::new(),
        is_told: false,
    };
    let _ = follow::follow_this(move |event| family.on(event));
}

struct Family {
    prefix: String,
    seen: Vec<Seen>,
    running: HashMap<u32, usize>,
    is_told: bool,
}

struct Seen {
    pid: u32,
    program: String,
    end: End,
    shares_memory: bool,
    profile: Result<Written, String>,
}

/// A last profile.
struct Written {
    path: PathBuf,
    live: i128,
    /// Whether the companion wrote it.
    by_us: bool,
}

impl Family {
    fn on(&mut self, event: Event) {
        match event {
            Event::Began {
                pid,
                parent,
                memory,
            } => {
                let of_parent = parent.and_then(|parent| self.running.get(&parent));
                let inherited = of_parent.map(|&index| self.seen[index].program.clone());
                self.running.insert(pid, self.seen.len());
                self.seen.push(Seen {
                    pid,
                    program: inherited.or_else(|| program_of(pid)).unwrap_or_default(),
                    end: End::Runs,
                    shares_memory: memory == follow::Memory::Shared,
                    profile: Err(String::new()),
                });
            }
            Event::Replaced { pid } => {
                if let Some(seen) = self.running.get(&pid).map(|&index| &mut self.seen[index]) {
                    seen.program = program_of(pid).unwrap_or_default();
                    seen.shares_memory = false;
                }
            }
            Event::Ending { pid, status } => {
                if let Some(&index) = self.running.get(&pid) {
                    let profile = self.profile(pid, self.seen[index].shares_memory);
                    let seen = &mut self.seen[index];
                    seen.profile = profile;
                    seen.end = End::Ended(status);
                    if index == 0 {
                        self.tell();
                    }
                }
            }
            Event::Ended { pid, .. } => {
                self.running.remove(&pid);
            }
        }
    }

    /// The last profile of a process, which is written now if it has not written one.
    fn profile(&self, pid: u32, shares_memory: bool) -> Result<Written, String> {
        if shares_memory {
            return Err(String::new());
        }
        let inside = about::number_inside(pid).unwrap_or(pid);
        let folder = fs::read_link(mallard_procfs::path(pid, "cwd")).unwrap_or_default();
        let prefix = folder.join(&self.prefix);
        if let Some(path) = written(&prefix, inside) {
            let bytes = fs::read(&path).map_err(|error| error.to_string())?;
            let profile = read::profile(&bytes).map_err(|error| error.to_string())?;
            return Ok(Written {
                live: live(&profile),
                path,
                by_us: false,
            });
        }
        let reading = Process::open(pid).and_then(|process| process.read());
        let profile = reading.map_err(|error| error.to_string())?.profile;
        let path = named(&prefix, &format!(".{inside}.0{FINAL_PPROF_SUFFIX}"));
        save(&path, &profile).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Written {
            live: live(&profile),
            path,
            by_us: true,
        })
    }

    /// Lists the profiles, if there are others than the one that a program writes itself.
    fn tell(&mut self) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let seen: Vec<&Seen> = self.seen.iter().filter(|it| !it.shares_memory).collect();
        let is_by_us = |seen: &&Seen| matches!(&seen.profile, Ok(written) if written.by_us);
        if seen.len() > 1 || seen.iter().any(is_by_us) {
            let rows = seen.iter().map(|seen| {
                let (live, path) = match &seen.profile {
                    Ok(written) => (bytes(written.live as f64), shown(&written.path)),
                    Err(_) if seen.end == End::Runs => (ABSENT.to_owned(), "at its end".to_owned()),
                    Err(why) => (ABSENT.to_owned(), why.clone()),
                };
                let end = crate::profiles::program::end_of(seen.end);
                [seen.pid.to_string(), seen.program.clone(), live, end, path]
            });
            let heads = ["pid", "program", "live", "ended", "profile"].map(str::to_owned);
            let lines: Vec<[String; 5]> = [heads].into_iter().chain(rows).collect();
            // There is nobody to be told that standard error is gone.
            let _ = io::stderr().write_all(table::aligned(&lines).as_bytes());
        }
        follow::be_silent();
    }
}

/// A path as a person would write it here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// The path with this end.
fn named(prefix: &Path, end: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// The last profile that a process has written.
fn written(prefix: &Path, pid: u32) -> Option<PathBuf> {
    let start = named(prefix, &format!(".{pid}."));
    let start = start.file_name()?.to_string_lossy().into_owned();
    let entries = fs::read_dir(prefix.parent()?).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_last = name.ends_with(FINAL_PPROF_SUFFIX) || name.ends_with(FINAL_TEXT_SUFFIX);
        name.starts_with(&start) && is_last
    })
}

fn live(profile: &Profile) -> i128 {
    let figures = View::Live.figures(profile);
    figures.map_or(0, |figures| profile.total(figures.main))
}

fn save(path: &Path, profile: &Profile) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    write::pprof(profile, &mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_of_an_option_says_whether_profiles_are_written() {
        let prefix = |strings: &[&str]| prefix_of(strings);
        assert_eq!(
            prefix(&["prof:true", "prof_final:true"]),
            Some("jeprof".into())
        );
        assert_eq!(
            prefix(&[
                "prof_prefix:/tmp/a,prof:true",
                "",
                "prof_final:true,prof_prefix:b"
            ]),
            Some("b".into())
        );
        for none in [
            "",
            "prof:true",
            "prof_final:true",
            "prof:true,prof_final:true,prof_prefix:",
        ] {
            assert_eq!(prefix(&[none]), None, "{none}");
        }
        assert_eq!(
            prefix(&["prof:true,prof_final:true", "prof_final:false"]),
            None
        );
    }
}
