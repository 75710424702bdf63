//! `mallard leak`: runs a program on Mallard, samples every block, and shows what was never freed.
//!
//! While the program runs, the live bytes of its call stacks are read from outside ([`growth`]). A
//! site whose bytes rise in each of four quarters of the run grows; all others were allocated once,
//! or at some time. What libraries keep for themselves is left out ([`kept`]).

mod growth;
mod kept;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use mallard_profile::model::Profile;
use mallard_profile::show::{self, Layout, Named, ProfilePage};
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, keys, rows};

use crate::options::search::SearchOptions;
use crate::profiles::program;
use crate::terminal::output;
use growth::Growth;

/// Find memory that a program never freed
///
/// Runs the program on Mallard, records every block, and shows by site what is still in use at the
/// end: first the sites that grew all the time, then the others. Blocks that the C library, the
/// loader and the runtimes of C++ and Rust keep for themselves until the end are left out.
///
/// If the program ends by a signal or by _exit, the last reading is shown, usually at most
/// half a second old (older for large heaps).
///
/// The exit code is 0 without leaks, 1 with leaks or if nothing could be read of the program, 2 for
/// a mistake on the command line. If the program fails, it is the program's own; 128 and the
/// signal's number if a signal ended it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard leak [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub struct Options {
    /// Ignore sites that hold less than this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    pub min: u64,

    /// Only sites that grew all the time are leaks
    #[arg(long)]
    pub growing: bool,

    /// Ignore call stacks with a function of this name; `*` stands for any text (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    pub suppress: Vec<String>,

    /// All leaks as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub search: SearchOptions,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard leak -- ./test                          exit code 1 if anything was never freed
  mallard leak --growing --min 4096 -- ./server --self-test
  mallard leak --suppress 'cache::*' --json -- ./test";

pub fn run(options: &Options) -> Result<ExitCode> {
    let mut growth = Growth::default();
    let ended = program::run(
        &options.program,
        ",lg_prof_sample:0",
        options.json,
        &mut growth,
        &options.search,
    )?;
    let loaded = ended.loaded;
    let profile = kept::without(&loaded.profile, &options.suppress);
    let found = leaks(&profile, &growth, options.min)?;
    let is_leak = |leak: &&Leak| leak.grows || !options.growing;
    let has_leaks = found.iter().any(|leak| is_leak(&leak));
    let text = if options.json {
        json(&loaded.name, &loaded.notes, &found, &profile, &growth)?
    } else {
        let mut text = format!("{}: {}\n", loaded.name, summary(&found, growth.is_known()));
        for (grows, head) in [
            (true, "growing"),
            (
                false,
                if growth.is_known() {
                    "not growing"
                } else {
                    "never freed"
                },
            ),
        ] {
            let chosen: Vec<&str> = found
                .iter()
                .filter(|leak| leak.grows == grows)
                .map(|leak| leak.key.as_str())
                .collect();
            if !chosen.is_empty() {
                text.push_str(&table(&loaded.outcome, head, &of_keys(&profile, &chosen)?)?);
            }
        }
        for note in &loaded.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    };
    output::text(&text)?;
    Ok(match (ended.status.success(), has_leaks) {
        (false, _) => program::code_of(ended.status),
        (true, true) => ExitCode::FAILURE,
        (true, false) => ExitCode::SUCCESS,
    })
}

/// Blocks of a site that were never freed.
struct Leak {
    key: String,
    bytes: i128,
    grows: bool,
}

fn leaks(profile: &Profile, growth: &Growth, min: u64) -> Result<Vec<Leak>> {
    let figures = View::Live.figures(profile)?;
    let quarters = growth.quarters(profile)?;
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

fn summary(leaks: &[Leak], is_known: bool) -> String {
    if leaks.is_empty() {
        return "no leaks".to_owned();
    }
    let bytes: i128 = leaks.iter().map(|leak| leak.bytes).sum();
    let growing = leaks.iter().filter(|leak| leak.grows).count();
    let growth = match (is_known, leaks.len(), growing) {
        (false, 1, _) => "the run was too short to tell whether it grows".to_owned(),
        (false, ..) => "the run was too short to tell which of them grow".to_owned(),
        (true, 1, 0) => "not growing".to_owned(),
        (true, 1, _) => "growing".to_owned(),
        (true, ..) => format!("{growing} of them growing"),
    };
    let sites = if leaks.len() == 1 { "site" } else { "sites" };
    let bytes = mallard_report::units::bytes(bytes as f64);
    format!("{bytes} at {} {sites} never freed, {growth}", leaks.len())
}

fn table(
    names: &mallard_profile::names::NamingOutcome,
    head: &str,
    profile: &Profile,
) -> Result<String> {
    let names = mallard_profile::names::NamingOutcome {
        lacks: if head == "growing" {
            Vec::new()
        } else {
            names.lacks.clone()
        },
    };
    let page = ProfilePage {
        subject: Named {
            name: head,
            profile,
        },
        before: None,
        view: View::Live,
        by: By::Function,
        names: &names,
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

fn json(
    name: &str,
    notes: &[String],
    leaks: &[Leak],
    profile: &Profile,
    growth: &Growth,
) -> Result<String> {
    let figures = View::Live.figures(profile)?;
    let mut sites = Vec::new();
    for row in rows(profile, figures, By::Function) {
        let Some(leak) = leaks.iter().find(|leak| leak.key == row.key) else {
            continue;
        };
        let place = row.heaviest.site.as_ref();
        sites.push(serde_json::json!({
            "site": row.key,
            "bytes": leak.bytes as f64,
            "blocks": row.blocks(figures).map(|blocks| blocks as f64),
            "grows": growth.is_known().then_some(leak.grows),
            "file": place.map(|place| &place.file),
            "line": place.map(|place| place.line),
            "callers": row.heaviest.callers.iter().map(|c| c.function.to_string()).collect::<Vec<_>>(),
        }));
    }
    let answer =
        serde_json::json!({ "schema": 1, "program": name, "leaks": sites, "notes": notes });
    Ok(format!("{}\n", serde_json::to_string_pretty(&answer)?))
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

/// A profile with the same types and places, and without samples.
fn empty(profile: &Profile) -> Profile {
    Profile {
        types: profile.types.clone(),
        default_type: profile.default_type,
        samples: Vec::new(),
        locations: profile.locations.clone(),
        mappings: profile.mappings.clone(),
        period: profile.period,
        period_type: profile.period_type.clone(),
        ..Profile::default()
    }
}
