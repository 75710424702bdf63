//! Leaks as text: the processes, if there are several, and the sites of those that leak.

use anyhow::Result;
use mallard_profile::model::Profile;
use mallard_profile::show::{self, Layout, Named, ProfilePage};
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, keys};
use mallard_report::units::{ABSENT, bytes};

use super::found::{self, Found, Leak};
use super::{Options, empty};
use crate::profiles::program::Ran;
use crate::profiles::table;

/// So many groups of processes have their sites shown.
const GROUPS_MAX: usize = 10;

pub fn text(ran: &Ran, found: &[Found], options: &Options) -> Result<String> {
    let mut text = String::new();
    if let [only] = found {
        let process = &ran.processes[0];
        let summary = summary(&only.leaks, only.is_growth_known);
        text.push_str(&format!("{}: {summary}\n", process.shown()));
        text.push_str(&sites(ran, only)?);
    } else {
        text.push_str(&several(ran, found, options)?);
        let groups = found::groups(ran, found, options)?;
        for group in groups.iter().take(GROUPS_MAX) {
            text.push_str(&format!("\n{}\n", head(ran, group, options)));
            text.push_str(&sites(ran, group)?);
        }
        if let Some(more) = groups
            .len()
            .checked_sub(GROUPS_MAX)
            .filter(|&more| more > 0)
        {
            let by_program = if options.follow.by_program {
                ""
            } else {
                "--by-program sums them up, "
            };
            text.push_str(&format!(
                "\n{more} further processes leak otherwise: {by_program}--json has all\n"
            ));
        }
    }
    let every: Vec<usize> = (0..ran.processes.len()).collect();
    for note in ran.notes(&every) {
        text.push_str(&format!("note: {note}\n"));
    }
    Ok(text)
}

/// The first line, and a line for each process.
fn several(ran: &Ran, found: &[Found], options: &Options) -> Result<String> {
    let leaking = found.iter().filter(|found| !found.leaks.is_empty());
    let (number, sum) = leaking.fold((0, 0), |(number, sum), found| {
        (number + 1, sum + found.bytes())
    });
    let others = ran.processes.len() - 1;
    let processes = if others == 1 { "process" } else { "processes" };
    let unknown = ran
        .processes
        .iter()
        .filter(|process| process.why_not().is_some());
    let summary = match (number, unknown.count()) {
        (0, 0) => "no leaks".to_owned(),
        (0, unknown) => format!(
            "no leaks in the {} of them that could be read",
            ran.processes.len() - unknown
        ),
        (1, _) => format!("{} never freed, in one of them", bytes(sum as f64)),
        _ => format!("{} never freed, in {number} of them", bytes(sum as f64)),
    };
    let mut text = format!(
        "{} and {others} more {processes}: {summary}\n",
        ran.processes[0].shown()
    );
    let figure = |place: usize| {
        if ran.processes[place].why_not().is_some() {
            return "not known".to_owned();
        }
        if found::is_left_out(ran, place, options) {
            return ABSENT.to_owned();
        }
        bytes(found[place].bytes() as f64)
    };
    let weight = |place: usize| found[place].bytes();
    let all = Some("--json has all");
    text.push_str(&table::processes(ran, "never freed", figure, weight, all));
    if (0..found.len()).any(|place| found::is_left_out(ran, place, options)) {
        text.push_str(if options.only.is_empty() {
            "–: a shell; what it holds for itself does not count\n"
        } else {
            "–: not named by --only\n"
        });
    }
    Ok(text)
}

/// Which processes a group consists of, and what they leak.
fn head(ran: &Ran, group: &Found, options: &Options) -> String {
    let first = &ran.processes[group.processes[0]];
    let summary = summary(&group.leaks, group.is_growth_known);
    let pids = table::pids(ran, &group.processes);
    match group.processes.len() {
        1 => format!("{}: {summary}", first.shown()),
        number if options.follow.by_program => {
            format!("{}, {number} processes together: {summary}", first.program)
        }
        number => format!(
            "{}, {number} processes with the same leaks ({pids}), each: {summary}",
            first.program
        ),
    }
}

fn summary(leaks: &[Leak], is_known: bool) -> String {
    if leaks.is_empty() {
        return "no leaks".to_owned();
    }
    let sum: i128 = leaks.iter().map(|leak| leak.bytes).sum();
    let growing = leaks.iter().filter(|leak| leak.grows).count();
    let growth = match (is_known, leaks.len(), growing) {
        (false, 1, _) => "the run was too short to tell whether it grows".to_owned(),
        (false, ..) => "the run was too short to tell which of them grow".to_owned(),
        (true, 1, 0) => "not growing".to_owned(),
        (true, 1, _) => "growing".to_owned(),
        (true, ..) => format!("{growing} of them growing"),
    };
    let sites = if leaks.len() == 1 { "site" } else { "sites" };
    let sum = bytes(sum as f64);
    format!("{sum} at {} {sites} never freed, {growth}", leaks.len())
}

/// The sites, those that grow apart from the others.
fn sites(ran: &Ran, found: &Found) -> Result<String> {
    let others = if found.is_growth_known {
        "not growing"
    } else {
        "never freed"
    };
    let mut text = String::new();
    for (grows, head) in [(true, "growing"), (false, others)] {
        let chosen: Vec<&str> = (found.leaks.iter())
            .filter(|leak| leak.grows == grows)
            .map(|leak| leak.key.as_str())
            .collect();
        if !chosen.is_empty() {
            text.push_str(&table_of(ran, head, &of_keys(&found.profile, &chosen)?)?);
        }
    }
    Ok(text)
}

fn table_of(ran: &Ran, head: &str, profile: &Profile) -> Result<String> {
    let page = ProfilePage {
        subject: Named {
            name: head,
            profile,
        },
        before: None,
        view: View::Live,
        by: By::Function,
        names: &ran.outcome(profile),
        notes: &[],
        apart: None,
    };
    let layout = Layout {
        width: None,
        color: false,
        rows: None,
    };
    Ok(show::table(&page, layout)?)
}

/// The live samples of some rows.
fn of_keys(profile: &Profile, chosen: &[&str]) -> Result<Profile> {
    let live = View::Live.figures(profile)?.main;
    let samples = profile.samples.iter().zip(keys(profile, By::Function));
    let of_chosen = samples
        .filter(|(sample, key)| sample.values[live] != 0 && chosen.contains(&key.as_str()))
        .map(|(sample, _)| sample.clone());
    Ok(Profile {
        samples: of_chosen.collect(),
        ..empty(profile)
    })
}
