//! The last profiles of all processes that `mallard run` starts.
//!
//! With `prof_final:true`, Mallard writes a profile when a process ends in good order. For a
//! process that ends by a signal or by `_exit`, a companion of the program writes it. When the
//! program's own process has ended, the companion lists the profiles.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mallard_formats::profile::{FINAL_PPROF_SUFFIX, FINAL_TEXT_SUFFIX};
use mallard_procfs::about;
use mallard_profile::model::Profile;
use mallard_profile::process::live::Process;
use mallard_profile::view::View;
use mallard_profile::{read, write};
use mallard_report::units::{ABSENT, bytes};
use mallard_watch::clock::file_time;
use mallard_watch::follow::{self, Event};

use crate::profiles::followed::{Followed, Followee};
use crate::profiles::members::End;
use crate::profiles::{save, table};

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
        followed: Followed::new(),
        is_told: false,
    };
    let _ = follow::follow_this(move |event| family.on(event));
}

struct Family {
    prefix: String,
    followed: Followed<Seen>,
    is_told: bool,
}

struct Seen {
    began: SystemTime,
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
                let seen = Seen {
                    began: file_time(),
                    profile: Err(String::new()),
                };
                self.followed.began(pid, parent, memory, seen);
            }
            Event::Replaced { pid } => self.followed.replaced(pid),
            Event::Ending {
                pid,
                thread,
                status,
            } => {
                if let Some((index, it)) = self.followed.running(pid) {
                    if !it.shares_memory {
                        it.known.profile = profile(&self.prefix, pid, thread, it.known.began);
                    }
                    it.end = End::Ended(status);
                    if index == 0 {
                        self.tell();
                    }
                }
            }
            Event::Ended { pid, status } => {
                if let Some((index, news)) = self.followed.ended(pid, status) {
                    if let Some(it) = news {
                        it.known.profile = Err("it ended before it could be read".to_owned());
                    }
                    if index == 0 {
                        self.tell();
                    }
                }
            }
        }
    }

    /// Lists the profiles, if there are others than the one that a program writes itself.
    fn tell(&mut self) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let all = self.followed.list.iter();
        let seen: Vec<_> = all.filter(|it| !it.shares_memory).collect();
        let is_by_us = |it: &&Followee<Seen>| matches!(&it.known.profile, Ok(it) if it.by_us);
        if seen.len() > 1 || seen.iter().any(is_by_us) {
            let rows = seen.iter().map(|seen| {
                let (live, path) = match &seen.known.profile {
                    Ok(written) => (bytes(written.live as f64), shown(&written.path)),
                    Err(_) if seen.end == End::Runs => (ABSENT.to_owned(), "at its end".to_owned()),
                    Err(why) => (ABSENT.to_owned(), why.clone()),
                };
                let end = crate::profiles::program::end_of(seen.end);
                [seen.pid.to_string(), seen.program.clone(), live, end, path]
            });
            let heads = ["pid", "program", "live", "ended", "profile"].map(str::to_owned);
            let lines: Vec<[String; 5]> = [heads].into_iter().chain(rows).collect();
            // If standard error is closed, the list is lost.
            let _ = io::stderr().write_all(table::aligned(&lines).as_bytes());
        }
        follow::be_silent();
    }
}

/// The last profile of a process, which is written now if it has not written one. The thread is one
/// that is still there.
fn profile(prefix: &str, pid: u32, thread: u32, began: SystemTime) -> Result<Written, String> {
    let inside = about::number_inside(pid).unwrap_or(pid);
    let folder = fs::read_link(mallard_procfs::path(thread, "cwd")).unwrap_or_default();
    let prefix = folder.join(prefix);
    if let Some(path) = written(&prefix, inside, began) {
        let bytes = fs::read(&path).map_err(|error| error.to_string())?;
        let profile = read::profile(&bytes).map_err(|error| error.to_string())?;
        return Ok(Written {
            live: live(&profile),
            path,
            by_us: false,
        });
    }
    let reading = Process::open(thread).and_then(|process| process.read());
    let profile = reading.map_err(|error| error.to_string())?.profile;
    let path = named(&prefix, &format!(".{inside}.0{FINAL_PPROF_SUFFIX}"));
    save(&path, |out| write::pprof(&profile, out)).map_err(|error| format!("{error:#}"))?;
    Ok(Written {
        live: live(&profile),
        path,
        by_us: true,
    })
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

/// The last profile that a process has written since it began: an earlier one may have had the same
/// number.
fn written(prefix: &Path, pid: u32, began: SystemTime) -> Option<PathBuf> {
    let start = named(prefix, &format!(".{pid}."));
    let start = start.file_name()?.to_string_lossy().into_owned();
    let entries = fs::read_dir(prefix.parent()?).ok()?.flatten();
    let is_later = |path: &Path| {
        let written = path.metadata().and_then(|about| about.modified());
        written.is_ok_and(|written| written >= began)
    };
    entries.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_last = name.ends_with(FINAL_PPROF_SUFFIX) || name.ends_with(FINAL_TEXT_SUFFIX);
        name.starts_with(&start) && is_last && is_later(path)
    })
}

fn live(profile: &Profile) -> i128 {
    let figures = View::Live.figures(profile);
    figures.map_or(0, |figures| profile.total(figures.main))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_an_earlier_process_with_the_same_number_is_not_this_one_s() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("jeprof");
        let file = folder.path().join("jeprof.11.0.f.heap");
        let before = file_time();
        fs::write(&file, "").unwrap();
        assert_eq!(written(&prefix, 11, before), Some(file));
        assert_eq!(written(&prefix, 1, before), None);
        let later = file_time() + std::time::Duration::from_secs(1);
        assert_eq!(written(&prefix, 11, later), None);
    }

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
