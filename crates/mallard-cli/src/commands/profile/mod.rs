//! `mallard profile`: reads heap profiles, gives them names and shows them.
//!
//! `mallard_profile` does the work. [`source`] reads files, processes and core files, [`program`]
//! runs a program to its end, and [`control`] asks a process to sample. This module picks the form
//! of the answer and writes files.

mod control;
mod options;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use mallard_profile::show::{self, Layout, ProfilePage};
use mallard_profile::view::View;
use mallard_profile::view::trim::trimmed;
use mallard_profile::write;

use crate::profiles::program::{self, Profiles};
use crate::profiles::source::{self, Loaded};
use crate::session::folder;
use crate::terminal::output::{self, say};
pub use options::Options;

/// The page that is written beside a table.
const PAGE: &str = "profile.html";
/// The columns of a table that no terminal limits.
const TABLE_WIDTH_COLUMNS: usize = 120;

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(outcome) = options.control.run() {
        return outcome;
    }
    if !options.program.is_empty() {
        return of_program(options);
    }
    let Some(subject) = &options.subject else {
        unreachable!("the command line asks for a subject")
    };
    if let Some(apart) = options.span {
        let (before, after) = source::twice(subject, apart, &options.search)?;
        return present(
            &after,
            Some(&before),
            Some(apart),
            options.view.view(),
            None,
            options,
        );
    }
    let before = match &options.diff {
        Some(before) => Some(source::load(before, &options.search)?),
        None => None,
    };
    let subject = source::load(subject, &options.search)?;
    present(
        &subject,
        before.as_ref(),
        None,
        options.view.view(),
        None,
        options,
    )
}

/// `mallard profile -- PROGRAM`.
fn of_program(options: &Options) -> Result<ExitCode> {
    let conf = options
        .rate
        .map_or_else(String::new, |rate| format!(",lg_prof_sample:{}", rate.lg));
    let is_quiet = !options.form.is_table();
    let mut watch = Profiles::default();
    let ended = program::run(
        &options.program,
        &conf,
        is_quiet,
        &mut watch,
        &options.search,
    )?;
    let mut first = None;
    // At the end of most programs little is left: what was there at the peak is the question.
    if options.view.is_none() && options.form.is_table() {
        let (quiet, named) = (options.without_files(), &ended.loaded);
        present(named, None, None, View::Peak, None, &quiet)?;
        say!("")?;
        first = Some(View::Peak);
    }
    let view = options.view.view();
    present(&ended.loaded, None, None, view, first, options)?;
    Ok(program::code_of(ended.status))
}

/// Gives the answer and writes files, in which the view `first` comes before the one that is shown.
fn present(
    subject: &Loaded,
    before: Option<&Loaded>,
    apart: Option<Duration>,
    view: View,
    first: Option<View>,
    options: &Options,
) -> Result<ExitCode> {
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
    let page = ProfilePage {
        subject: subject.named(),
        before: before.map(Loaded::named),
        view,
        by: options.by.into(),
        names: &names,
        notes: &subject.notes,
        apart,
    };
    page.check()?;
    let answer = answer(&page, options)?;
    let in_files = ProfilePage {
        view: first.unwrap_or(view),
        ..page
    };
    let written = write_files(&in_files, options)?;
    output::text(&answer)?;
    if options.form.is_table() && !written.is_empty() {
        say!("wrote {}", written.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(page: &ProfilePage<'_>, options: &Options) -> Result<String> {
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
            width: Some(size.map_or(TABLE_WIDTH_COLUMNS, |(_, columns)| usize::from(columns))),
            color: console::colors_enabled(),
            rows: Some(options.rows.max(1)),
        }
    };
    Ok(show::table(page, layout)?)
}

/// Writes the requested files and prints their names.
fn write_files(page: &ProfilePage<'_>, options: &Options) -> Result<Vec<String>> {
    let default = options.form.is_table() && !options.no_html;
    let html = options.html.clone().or(default.then(|| PAGE.into()));
    if options.html.is_none() && default {
        folder::keep_earlier(Path::new(PAGE))?;
    }
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
