//! What was never freed: by process, and put together for processes that are alike.

use anyhow::Result;
use mallard_profile::model::Profile;
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};

use super::{Options, growth, kept};
use crate::profiles::program::{Of, Ran};

/// Blocks of a site that were never freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    pub key: String,
    pub bytes: i128,
    pub grows: bool,
}

/// What one process, or some together, never freed.
pub struct Found {
    /// The places of the processes.
    pub processes: Vec<usize>,
    pub profile: Profile,
    pub leaks: Vec<Leak>,
    /// Whether it is known which of them grow.
    pub is_growth_known: bool,
}

impl Found {
    /// Of one process.
    pub fn of(ran: &Ran, place: usize, options: &Options) -> Result<Found> {
        let process = &ran.processes[place];
        let profile = kept::without(&ran.profile(&[place]), &options.suppress);
        Ok(Found {
            leaks: leaks(process, &profile, options.min)?,
            is_growth_known: growth::is_known(process),
            processes: vec![place],
            profile,
        })
    }

    /// Of several processes together. A site grows if it grew in one of them.
    pub fn together(ran: &Ran, of: &[&Found], options: &Options) -> Result<Found> {
        let processes: Vec<usize> = of.iter().flat_map(|of| of.processes.clone()).collect();
        let profile = kept::without(&ran.profile(&processes), &options.suppress);
        let figures = View::Live.figures(&profile)?;
        let grows = |key: &str| {
            let mut leaks = of.iter().flat_map(|of| &of.leaks);
            leaks.any(|leak| leak.grows && leak.key == key)
        };
        let rows = rows(&profile, figures, By::Function).into_iter();
        let leaks = rows.filter(|row| row.main(figures) >= i128::from(options.min));
        Ok(Found {
            leaks: leaks
                .map(|row| Leak {
                    grows: grows(&row.key),
                    bytes: row.main(figures),
                    key: row.key,
                })
                .collect(),
            is_growth_known: of.iter().any(|of| of.is_growth_known),
            processes,
            profile,
        })
    }

    pub fn bytes(&self) -> i128 {
        self.leaks.iter().map(|leak| leak.bytes).sum()
    }

    /// Whether a leak is one that the user asked for.
    pub fn has_leaks(&self, options: &Options) -> bool {
        self.leaks.iter().any(|leak| leak.grows || !options.growing)
    }
}

fn leaks(process: &Of, profile: &Profile, min: u64) -> Result<Vec<Leak>> {
    // A process without a profile has none.
    if process.why_not().is_some() {
        return Ok(Vec::new());
    }
    let figures = View::Live.figures(profile)?;
    let quarters = growth::quarters(process, profile)?;
    let found = rows(profile, figures, By::Function).into_iter();
    let found = found.filter(|row| row.main(figures) >= i128::from(min));
    let leaks = found.map(|row| {
        let mut before = 0;
        let bytes = row.main(figures);
        let grows = quarters.as_ref().is_some_and(|quarters| {
            quarters
                .iter()
                .map(|quarter| quarter.get(&row.key).copied().unwrap_or(0))
                .chain([bytes])
                .all(|now| std::mem::replace(&mut before, now) < now)
        });
        Leak {
            key: row.key,
            bytes,
            grows,
        }
    });
    Ok(leaks.collect())
}

/// What each process never freed. What does not count is left out.
pub fn all(ran: &Ran, options: &Options) -> Result<Vec<Found>> {
    let places = 0..ran.processes.len();
    places
        .map(|place| {
            let mut found = Found::of(ran, place, options)?;
            if is_left_out(ran, place, options) {
                found.leaks.clear();
            }
            Ok(found)
        })
        .collect()
}

/// Whether what a process holds does not count: it is of another program than those that the user
/// named, or a shell that started other programs.
pub fn is_left_out(ran: &Ran, place: usize, options: &Options) -> bool {
    let process = &ran.processes[place];
    if options.only.is_empty() {
        return process.is_shell() && !ran.processes.iter().all(Of::is_shell);
    }
    !options.only.contains(&process.program)
}

/// An error if no process is of a program that the user named.
pub fn check_names(ran: &Ran, options: &Options) -> Result<()> {
    let is_left_out = |place: usize| is_left_out(ran, place, options);
    if options.only.is_empty() || !(0..ran.processes.len()).all(is_left_out) {
        return Ok(());
    }
    let mut seen: Vec<&str> = ran.processes.iter().map(|it| &*it.program).collect();
    seen.sort_unstable();
    seen.dedup();
    let why = format!(
        "no process of {} was seen; seen: {}",
        options.only.join(" or "),
        seen.join(", ")
    );
    Err(ran.failed(why))
}

/// Processes of one program with the same leaks; with `by_program`, all of one program that have
/// leaks. Those with most bytes come first.
pub fn groups(ran: &Ran, found: &[Found], options: &Options) -> Result<Vec<Found>> {
    let mut groups: Vec<Vec<&Found>> = Vec::new();
    for one in found.iter().filter(|found| !found.leaks.is_empty()) {
        let program = |of: &Found| &ran.processes[of.processes[0]].program;
        let same = groups.iter_mut().find(|group| {
            let first = group[0];
            program(first) == program(one)
                && (options.follow.by_program
                    || (first.leaks == one.leaks && first.is_growth_known == one.is_growth_known))
        });
        match same {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    let together = |group: &Vec<&Found>| -> Result<Found> {
        if options.follow.by_program {
            return Found::together(ran, group, options);
        }
        // One stands for all.
        let first = group[0];
        Ok(Found {
            processes: group.iter().flat_map(|of| of.processes.clone()).collect(),
            profile: first.profile.clone(),
            leaks: first.leaks.clone(),
            is_growth_known: first.is_growth_known,
        })
    };
    let mut groups: Vec<Found> = groups.iter().map(together).collect::<Result<_>>()?;
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes()));
    Ok(groups)
}
