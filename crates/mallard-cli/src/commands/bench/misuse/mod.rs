//! `mallard bench misuse`: small programs that misuse the heap, on every allocator: which of them
//! it stops, on a fresh heap and on aged ones.
//!
//! [`programs`] has the programs and how they end. Outcomes have no time and no memory, so they are
//! results of a kind of their own ([`mallard_report::misuse`]).

mod programs;

use std::process::ExitCode;

use anyhow::{Result, bail};
use mallard_allocators::Allocator;
use mallard_report::misuse::{self, Misuse, Outcome, Program, Ran};
use mallard_report::units;
use mallard_runner::{Launcher, Stop};

use super::{Options, only_for_basic, subject};
use crate::options::exports::Form;
use crate::session::folder::MISUSE_FILE;
use crate::session::outlook::{self, Outlook};
use crate::session::{Session, terminal_options};
use crate::terminal::exit::usage;
use crate::terminal::output::say;
use crate::terminal::progress::Progress;
use crate::workloads::Workloads;
use programs::{Case, Programs};

/// The first word of its rows.
pub const NAME: &str = "misuse";
/// The median of five hardly depends on luck.
const DEFAULT_SEEDS: u32 = 5;
/// Seconds of a process on a fresh heap and of one on an aged heap, for the estimate.
const FRESH_SECONDS: f64 = 0.01;
const AGED_SECONDS: f64 = 0.05;

/// Prints the programs and what they do.
pub fn list(names: &[String]) -> Result<ExitCode> {
    let mut kind = String::new();
    for case in chosen(names)? {
        if case.kind != kind {
            say!("\n{}", console::style(&case.kind).bold())?;
            kind.clone_from(&case.kind);
        }
        let sizes: Vec<String> = case.sizes.iter().map(|size| units::size(*size)).collect();
        say!("  {:<20} {} ({})", case.name, case.what, sizes.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The cases with these names or of these kinds, as the programs list them; all if there is none.
fn chosen(names: &[String]) -> Result<Vec<Case>> {
    let launcher = Launcher::new(Stop::default())?;
    let workloads = Workloads::install(launcher.folder())?;
    programs::select(programs::list(&launcher, &workloads)?, names).map_err(usage)
}

pub fn run(options: &Options, names: &[String]) -> Result<ExitCode> {
    only_for_basic(options)?;
    if let Some(name) = of_races(options) {
        return Err(usage(format!(
            "{name} is for rows that are timed; misuse has --seeds"
        )));
    }
    let cases = chosen(names)?;
    let seeds = options.seeds.unwrap_or(DEFAULT_SEEDS);
    if options.dry_run {
        return print_outlook(options, &cases, seeds);
    }
    let session = Session::open("bench", &subject(NAME, names), &options.common, None)?;
    let workloads = Workloads::install(session.launcher.folder())?;
    let programs = Programs {
        launcher: &session.launcher,
        workloads: &workloads,
        cpus: session.cpus.clone(),
        timeout: options.common.limit(Some(programs::LIMIT_SECONDS)),
    };
    let allocators = session.allocators();
    let misuses = all(&session, &programs, &allocators, &cases, seeds)?;
    if misuses.is_empty() {
        bail!("no program ran on every allocator");
    }
    let about = session.about();
    show(
        &session,
        options,
        &Misuse {
            schema: misuse::SCHEMA,
            started: about.started,
            command: about.command,
            machine: about.machine,
            allocators: about.allocators,
            seeds,
            misuses,
        },
    )
}

/// An option on the command line that has a meaning only for rows that are timed.
fn of_races(options: &Options) -> Option<&'static str> {
    let given = [
        ("--runs", options.runs.is_some()),
        ("--min-runs", options.min_runs.is_some()),
        ("--aa", options.common.aa),
        ("--quick", options.work.quick),
    ];
    given
        .iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| *name)
}

fn print_outlook(options: &Options, cases: &[Case], seeds: u32) -> Result<ExitCode> {
    let outlook = Outlook::of("bench", &options.common.choice)?;
    let each = outlook.count() * (1 + seeds as usize);
    let rows: Vec<(String, usize)> = cases
        .iter()
        .map(|case| (case.name.clone(), case.sizes.len() * each))
        .collect();
    let programs: usize = cases.iter().map(|case| case.sizes.len()).sum();
    let seconds =
        (programs * outlook.count()) as f64 * (FRESH_SECONDS + f64::from(seeds) * AGED_SECONDS);
    outlook.print(
        &rows,
        &format!("{} each", heaps(seeds)),
        &outlook::about(seconds),
    )
}

/// The heaps that a program runs on.
fn heaps(seeds: u32) -> String {
    match seeds {
        0 => "a fresh heap".to_owned(),
        _ => format!(
            "a fresh heap and {}",
            units::plural(seeds as usize, "aged one")
        ),
    }
}

/// Runs the programs until the end or a stop: those that ran on every allocator.
fn all(
    session: &Session,
    programs: &Programs,
    allocators: &[Allocator],
    cases: &[Case],
    seeds: u32,
) -> Result<Vec<Program>> {
    let count: usize = cases.iter().map(|case| case.sizes.len()).sum();
    let mut progress = Progress::new((count * allocators.len()) as f64);
    progress.say(&format!(
        "{} on {}, on {}",
        units::plural(count, "program"),
        units::plural(allocators.len(), "allocator"),
        heaps(seeds),
    ));
    let mut all = Vec::new();
    for (case, size) in cases
        .iter()
        .flat_map(|c| c.sizes.iter().map(move |s| (c, *s)))
    {
        let mut program = Program {
            name: case.name.clone(),
            size,
            kind: case.kind.clone(),
            counted: case.counted,
            what: case.what.clone(),
            ran: Vec::new(),
        };
        for allocator in allocators {
            progress.running(&format!("{} · {}", program.shown(), allocator.name));
            let (plain, said) = programs.run(case, size, 0, allocator)?;
            let mut ran = Ran {
                allocator: allocator.name.clone(),
                plain,
                aged: Vec::new(),
                said,
            };
            for seed in 1..=seeds {
                if session.stop.requested() {
                    break;
                }
                let (outcome, _) = programs.run(case, size, seed, allocator)?;
                ran.aged.push(outcome);
            }
            if session.stop.requested() {
                progress.finish();
                return Ok(all);
            }
            program.ran.push(ran);
            progress.advance(1.0);
        }
        all.push(program);
    }
    progress.finish();
    Ok(all)
}

/// Prints the outcomes and writes them in every form.
fn show(session: &Session, options: &Options, misuse: &Misuse) -> Result<ExitCode> {
    let json = serde_json::to_string_pretty(misuse)? + "\n";
    let csv = misuse::csv(misuse);
    let folder = session.folder();
    let files = [
        folder.text("misuse.html", &misuse::page(misuse))?,
        folder.text(MISUSE_FILE, &json)?,
        folder.text("misuse.csv", &csv)?,
    ];
    let exports = &options.common.exports;
    let code = session.say(misuse::text(misuse, terminal_options()), &files, exports)?;
    exports.write_as(&mut |form, out| {
        out.write_all(match form {
            Form::Json => json.as_bytes(),
            Form::Csv => csv.as_bytes(),
            Form::Markdown => return out.write_all(misuse::markdown(misuse).as_bytes()),
        })
    })?;
    let mut ran = misuse.misuses.iter().flat_map(|program| &program.ran);
    if ran.all(|ran| matches!(ran.plain, Outcome::Failed(_))) {
        bail!("no program began; see above");
    }
    Ok(code)
}
