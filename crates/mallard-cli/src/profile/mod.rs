//! `mallard profile`: reads heap profiles, gives them names and shows them.
//!
//! `mallard_profile` does the work. This module finds the inputs, picks the form of the answer and
//! writes files. A source of profiles other than files, such as a live process, has to give a
//! [`Loaded`]: the profile and where the files of its process lie. The rest is the same.

mod control;
mod options;

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mallard_profile::model::Profile;
use mallard_profile::names::{self, Outcome};
use mallard_profile::show::{self, Layout, Named, Page};
use mallard_profile::view::View;
use mallard_profile::view::trim::trimmed;
use mallard_profile::{read, write};

use crate::progress::Spinner;
use crate::say::{self, say};
pub use options::Options;

/// The page that is written beside a table.
const PAGE: &str = "profile.html";
/// The columns of a table that no terminal limits.
const COLUMNS: usize = 120;

/// A profile that has its names.
struct Loaded {
    name: String,
    profile: Profile,
    outcome: Outcome,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(outcome) = options.control.run() {
        return outcome;
    }
    let Some(file) = &options.file else {
        bail!("there is no file to read");
    };
    let before = match &options.diff {
        Some(before) => Some(load(before, options)?),
        None => None,
    };
    let subject = load(file, options)?;
    let mut names = subject.outcome.clone();
    // After a new build, the earlier profile's program is often gone.
    for lack in before.iter().flat_map(|before| &before.outcome.lacks) {
        let of_subject = names
            .lacks
            .iter()
            .any(|other| other.why == lack.why && other.module == lack.module);
        if !of_subject {
            names.lacks.push(lack.clone());
        }
    }
    let page = Page {
        subject: subject.named(),
        before: before.as_ref().map(Loaded::named),
        view: options.view.view(),
        by: options.by.into(),
        names: &names,
    };
    page.check()?;
    let answer = answer(&page, options)?;
    let written = write_files(&page, options)?;
    say::text(&answer)?;
    if options.form.is_table() && !written.is_empty() {
        say!("wrote {}", written.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Loaded {
    fn named(&self) -> Named<'_> {
        Named {
            name: &self.name,
            profile: &self.profile,
        }
    }
}

fn load(file: &Path, options: &Options) -> Result<Loaded> {
    let shown = file.display();
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    let bytes = bytes.with_context(|| format!("cannot read {shown}"))?;
    let mut profile = read::profile(&bytes).with_context(|| shown.to_string())?;
    let name = match file.file_name() {
        Some(name) if file != Path::new("-") => name.to_string_lossy().into_owned(),
        _ => "standard input".to_owned(),
    };
    let spinner = Spinner::new();
    spinner.show(format!("finding names for {name}"));
    let search = &options.search;
    let outcome = names::name(
        &mut profile,
        &names::Options {
            root: search.root.clone(),
            debug_folders: search.debug_folders.clone(),
            files: search.binaries.clone(),
            pid: search.pid.or_else(|| pid_of(&name)),
            fetcher: fetcher(),
        },
    );
    Ok(Loaded {
        name,
        profile,
        outcome,
    })
}

/// debuginfod's client, where the user has named servers for it.
fn fetcher() -> Option<PathBuf> {
    let servers = std::env::var_os("DEBUGINFOD_URLS").unwrap_or_default();
    (!servers.is_empty()).then(|| "debuginfod-find".into())
}

/// The process in a name as Mallard and jemalloc give it: `PREFIX.PID.NUMBER.KIND.heap`.
fn pid_of(name: &str) -> Option<u32> {
    let mut parts = name.rsplit('.');
    let (_heap, _kind, _number) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?.parse().ok()
}

fn answer(page: &Page<'_>, options: &Options) -> Result<String> {
    let form = options.form;
    if form.json {
        return Ok(show::json(page)?);
    }
    if form.collapsed {
        let figures = page.view.figures(page.subject.profile)?;
        return Ok(write::collapsed(
            &trimmed(page.subject.profile),
            figures.main,
        ));
    }
    let layout = if form.text {
        Layout {
            width: None,
            color: false,
            rows: None,
        }
    } else {
        let size = console::Term::stdout().size_checked();
        Layout {
            width: Some(size.map_or(COLUMNS, |(_, columns)| usize::from(columns))),
            color: console::colors_enabled(),
            rows: Some(options.rows.max(1)),
        }
    };
    Ok(show::table(page, layout)?)
}

/// Writes what was asked for and tells each file.
fn write_files(page: &Page<'_>, options: &Options) -> Result<Vec<String>> {
    let default = options.form.is_table() && !options.no_html;
    let html = options.html.clone().or(default.then(|| PAGE.into()));
    let mut written = Vec::new();
    if let Some(path) = html {
        save(&path, |out| out.write_all(show::html(page).as_bytes()))?;
        let views = View::of(page.subject.profile);
        let views: Vec<&str> = views.iter().map(|(view, _)| view.name()).collect();
        written.push(format!(
            "{} (flame graphs: {})",
            path.display(),
            views.join(", ")
        ));
    }
    if let Some(path) = &options.pprof {
        save(path, |out| {
            write::pprof(&trimmed(page.subject.profile), out)
        })?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

/// Writes a file whole: a reader never sees a part of it.
fn save(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = File::create(&part).map(BufWriter::new).and_then(|mut out| {
        write(&mut out)?;
        out.flush()
    });
    written
        .and_then(|()| fs::rename(&part, path))
        .inspect_err(|_| {
            // What is left of a failed attempt; there may be nothing.
            let _ = fs::remove_file(&part);
        })
        .with_context(|| format!("cannot write {}", path.display()))
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
}
