//! The processes of a program: a table of them, and the sites of each.

use anyhow::Result;
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};
use mallard_report::units::bytes;

use super::Options;
use crate::profiles::program::Ran;
use crate::profiles::source::Loaded;
use crate::profiles::table;
use crate::terminal::output::say;

/// So many of them have their sites shown.
const SHOWN_MAX: usize = 5;

/// Shows the processes and the sites of those with most. The files and the forms for programs have
/// all of them together.
pub fn present(ran: &Ran, options: &Options) -> Result<()> {
    let every: Vec<usize> = (0..ran.processes.len()).collect();
    let first = &ran.processes[0];
    let others = every.len() - 1;
    let processes = if others == 1 { "process" } else { "processes" };
    let name = format!("{} and {others} more {processes}", first.shown());
    let together = ran.loaded(&every, name.clone());
    if !options.form.is_table() {
        super::present(&together, None, None, options.view.view(), None, options)?;
        return Ok(());
    }
    let view = if options.view.is_none() {
        View::Peak
    } else {
        options.view.view()
    };
    say!("{name}")?;
    let totals: Vec<i128> = every.iter().map(|&it| total(ran, it, view)).collect();
    say!("{}", table(ran, view, &totals).trim_end())?;
    present_groups(ran, view, &totals, &together, options)?;
    for note in &together.notes {
        say!("note: {note}")?;
    }
    super::write_page(&together, view, options)
}

/// What a process has in a view.
fn total(ran: &Ran, place: usize, view: View) -> i128 {
    let profile = ran.profile(&[place]);
    let figures = view.figures(&profile);
    figures.map_or(0, |figures| profile.total(figures.main))
}

fn table(ran: &Ran, view: View, totals: &[i128]) -> String {
    let figure = |place: usize| match (ran.processes[place].why_not(), view) {
        (Some(_), _) => "not known".to_owned(),
        (None, View::Lifetime) => mallard_report::units::duration(totals[place] as f64),
        (None, _) => bytes(totals[place] as f64),
    };
    // No form has each process of very many.
    table::processes(ran, view.name(), figure, |place| totals[place], None)
}

/// Shows the sites of the processes with most.
fn present_groups(
    ran: &Ran,
    view: View,
    totals: &[i128],
    together: &Loaded,
    options: &Options,
) -> Result<()> {
    let by_program = options.follow.by_program;
    let mut groups = groups(ran, view, options);
    let weight = |group: &[usize]| group.iter().map(|&place| totals[place]).sum::<i128>();
    groups.retain(|group| weight(group) != 0);
    groups.sort_by_key(|group| std::cmp::Reverse(weight(group)));
    let quiet = options.without_files();
    for group in groups.iter().take(SHOWN_MAX) {
        let shown = if by_program { &group[..] } else { &group[..1] };
        let mut loaded = ran.loaded(shown, name_of(ran, group, by_program));
        // Notes on all are at the end.
        loaded.notes.retain(|note| !together.notes.contains(note));
        say!("")?;
        super::present(&loaded, None, None, view, None, &quiet)?;
    }
    say!("")?;
    if let Some(more) = groups.len().checked_sub(SHOWN_MAX).filter(|&more| more > 0) {
        let how = if by_program {
            ""
        } else {
            ": --by-program sums them up"
        };
        say!("{more} more have less{how}")?;
    }
    Ok(())
}

fn name_of(ran: &Ran, group: &[usize], by_program: bool) -> String {
    let process = &ran.processes[group[0]];
    match group.len() {
        1 => process.shown(),
        number if by_program => format!("{}, {number} processes together", process.program),
        number => format!(
            "{}, {number} processes with the same sites ({}), each",
            process.program,
            table::pids(ran, group)
        ),
    }
}

/// Processes of a program with the same sites, or all of a program together.
fn groups(ran: &Ran, view: View, options: &Options) -> Vec<Vec<usize>> {
    let sites = |place: usize| -> Vec<(String, i128)> {
        let profile = ran.profile(&[place]);
        let Ok(figures) = view.figures(&profile) else {
            return Vec::new();
        };
        let rows = rows(&profile, figures, By::Function).into_iter();
        rows.map(|row| (row.key.clone(), row.main(figures)))
            .collect()
    };
    type Group<'a> = (&'a str, Vec<(String, i128)>, Vec<usize>);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (place, process) in ran.processes.iter().enumerate() {
        let sites = if options.follow.by_program {
            Vec::new()
        } else {
            sites(place)
        };
        let same = |(program, of, _): &&mut Group<'_>| *program == process.program && *of == sites;
        match groups.iter_mut().find(same) {
            Some((_, _, group)) => group.push(place),
            None => groups.push((&process.program, sites, vec![place])),
        }
    }
    groups.into_iter().map(|(_, _, group)| group).collect()
}
