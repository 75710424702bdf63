//! `mallard profile`: reads heap profiles, gives them names and shows them.
//!
//! `mallard_profile` does the work. [`source`] reads files, processes and core files, [`program`]
//! runs a program to its end, [`family`] shows its processes, and [`control`] asks a process to
//! sample. This module picks the form of the answer and writes files.

mod control;
mod family;
mod options;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use mallard_profile::show::{self, Layout, ProfilePage};
use mallard_profile::view::View;
use mallard_profile::view::trim::trimmed;
use mallard_profile::write;

use crate::profiles::source::{self, Loaded};
use crate::profiles::{program, save, several};
use crate::session::folder;
use crate::terminal::exit;
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
    let of_programs = [
        ("--rate", options.rate.is_some()),
        ("--by-program", options.follow.by_program),
        ("--wait", options.follow.wait.is_some()),
        ("--no-trace", options.follow.no_trace),
    ];
    if let Some((option, _)) = of_programs.into_iter().find(|(_, is_given)| *is_given) {
        return Err(exit::usage(format!(
            "{option} is for programs: mallard profile {option} -- PROGRAM"
        )));
    }
    let view = options.view.view();
    let [subject] = &options.subjects[..] else {
        return of_several(options);
    };
    if let Some(apart) = options.span {
        let (before, after) = source::twice(subject, apart, &options.search)?;
        return present(&after, Some(&before), Some(apart), view, None, options);
    }
    let before = match &options.diff {
        Some(before) => Some(source::load(before, &options.search)?),
        None => None,
    };
    let subject = source::load(subject, &options.search)?;
    present(&subject, before.as_ref(), None, view, None, options)
}

/// `mallard profile FILE...`.
fn of_several(options: &Options) -> Result<ExitCode> {
    if options.diff.is_some() || options.span.is_some() {
        let option = if options.span.is_some() {
            "--for"
        } else {
            "--diff"
        };
        let number = options.subjects.len();
        return Err(exit::usage(format!(
            "{option} takes one profile, not {number}"
        )));
    }
    let left_out = |sentences: Vec<String>| {
        let named = sentences.into_iter();
        named
            .map(|it| format!("left out: {it}"))
            .collect::<Vec<_>>()
    };
    if options.each {
        let several::Read {
            read,
            left_out: not_read,
        } = several::each(&options.subjects, &options.search)?;
        let quiet = options.without_files();
        for (place, loaded) in read.iter().enumerate() {
            if place > 0 {
                say!("")?;
            }
            present(loaded, None, None, options.view.view(), None, &quiet)?;
        }
        for note in left_out(not_read) {
            say!("note: {note}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut sum = several::sum(&options.subjects, &options.search)?;
    let not_read = left_out(sum.left_out);
    if options.form.collapsed {
        // This form has no notes.
        not_read.iter().for_each(|note| eprintln!("note: {note}"));
    }
    sum.read.notes.extend(not_read);
    present(&sum.read, None, None, options.view.view(), None, options)
}

/// `mallard profile -- PROGRAM`.
fn of_program(options: &Options) -> Result<ExitCode> {
    let conf = options
        .rate
        .map_or_else(String::new, |rate| format!(",lg_prof_sample:{}", rate.lg));
    let purpose = program::Purpose {
        conf: &conf,
        is_quiet: !options.form.is_table(),
        snapshots: false,
    };
    let ran = program::run(&options.program, &purpose, &options.follow, &options.search)?;
    let view = options.view.view();
    if ran.processes.len() > 1 {
        family::present(&ran, options)?;
        return Ok(program::code_of(ran.status));
    }
    let loaded = ran.loaded(&[0], ran.processes[0].shown());
    let mut first = None;
    // At the end of most programs little is left: what was there at the peak is the question.
    if options.view.is_none() && options.form.is_table() {
        present(
            &loaded,
            None,
            None,
            View::Peak,
            None,
            &options.without_files(),
        )?;
        say!("")?;
        first = Some(View::Peak);
    }
    present(&loaded, None, None, view, first, options)?;
    Ok(program::code_of(ran.status))
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

/// Writes the files of a table that was shown otherwise, and prints their names.
fn write_page(subject: &Loaded, view: View, options: &Options) -> Result<()> {
    let page = ProfilePage {
        subject: subject.named(),
        before: None,
        view,
        by: options.by.into(),
        names: &subject.outcome,
        notes: &subject.notes,
        apart: None,
    };
    let written = write_files(&page, options)?;
    if !written.is_empty() {
        say!("wrote {}", written.join(", "))?;
    }
    Ok(())
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
