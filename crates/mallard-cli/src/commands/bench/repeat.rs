//! `mallard bench --from`: the same race again, by the command and the allocators of a result.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, FromArgMatches};
use mallard_allocators::{Catalog, Standing};
use mallard_report::model::{AllocatorInfo, Kind, Results};
use mallard_runner::Cpus;

use super::Options;
use crate::commands::diff;
use crate::options::command_line;
use crate::session::{self, machine};
use crate::terminal::exit::usage;

/// Runs the command of the result in `file` again. Where the results go is the new command's.
pub fn run(options: &Options, file: &Path) -> Result<ExitCode> {
    let earlier = diff::read(file)?;
    let words = words(&earlier, file)?;
    let (mut again, choice_given) = parsed(&words, file)?;
    let mut words = words;
    if !choice_given {
        let names = named(&earlier);
        words.extend(["-a".into(), names.join(",").into()]);
        again.common.choice.names = names;
    }
    if again.runs.is_none() {
        again.runs = runs(&earlier);
    }
    again.dry_run = options.dry_run;
    again.common.output = options.common.output.clone();
    again.common.exports = options.common.exports.clone();
    eprintln!("again: {}", shown(&words));
    for line in changes(&earlier, &again) {
        eprintln!("  {line}");
    }
    command_line::keep(words);
    let code = super::run(&again)?;
    if !options.dry_run && again.common.output.is_none() {
        eprintln!(
            "next: mallard diff {} mallard-results/latest",
            file.display()
        );
    }
    Ok(code)
}

/// The command line of a result of `bench`.
fn words(earlier: &Results, file: &Path) -> Result<Vec<OsString>> {
    let command = &earlier.command;
    let bench = command.get(1).is_some_and(|word| word == "bench");
    if earlier.kind == Kind::Compare || !bench {
        return Err(usage(format!(
            "--from {}: a result of `{}`, not of bench; give that command again",
            file.display(),
            shown(&command.iter().map(OsString::from).collect::<Vec<_>>()),
        )));
    }
    Ok(command.iter().map(OsString::from).collect())
}

fn shown(words: &[OsString]) -> String {
    let words = words.get(1..).unwrap_or_default();
    format!("mallard {}", command_line::typed(words))
}

/// The options of an earlier command, and whether it named its allocators.
fn parsed(words: &[OsString], file: &Path) -> Result<(Options, bool)> {
    let wrong = |why: String| {
        usage(format!(
            "--from {}: its command `{}` {why}",
            file.display(),
            shown(words)
        ))
    };
    let read = |words: &[OsString]| {
        let command = Options::augment_args(clap::Command::new("bench"));
        Options::from_arg_matches(&command.try_get_matches_from(words)?)
    };
    let bench = read(&words[1..]).map_err(|error| {
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        wrong(format!("is not understood: {first}"))
    })?;
    if bench.from.is_some() {
        return Err(wrong("runs nothing by itself".to_owned()));
    }
    let choice = &bench.common.choice;
    let given = !choice.names.is_empty() || !choice.variants.is_empty();
    Ok((bench, given))
}

/// The allocators that took part, except those that an `--add` of the command brings.
fn named(earlier: &Results) -> Vec<String> {
    let catalog = Catalog::new(Default::default());
    let known: Vec<String> = catalog.names().map(str::to_owned).collect();
    took_part(earlier)
        .map(|allocator| allocator.name.clone())
        .filter(|name| known.contains(name))
        .collect()
}

fn took_part(earlier: &Results) -> impl Iterator<Item = &AllocatorInfo> {
    let all = earlier.allocators.iter();
    all.filter(|allocator| allocator.unavailable.is_none())
}

/// A fixed number of runs, from a time when the default may have been another.
fn runs(earlier: &Results) -> Option<u32> {
    let setting = earlier.settings.iter().find(|(name, _)| name == "runs");
    setting.and_then(|(_, runs)| runs.parse().ok())
}

/// What is not as it was: lines for the user.
fn changes(earlier: &Results, again: &Options) -> Vec<String> {
    let cpus = again.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let (then, now) = (&earlier.machine, machine::describe(&cpus));
    let facts = [
        ("CPU", then.cpu.clone(), now.cpu),
        ("CPUs", then.cpus.to_string(), now.cpus.to_string()),
        ("kernel", then.kernel.clone(), now.kernel),
        ("huge pages", then.thp.clone(), now.thp),
    ];
    let mut lines: Vec<String> = facts
        .into_iter()
        .filter(|(_, then, now)| then != now)
        .map(|(what, then, now)| format!("{what}: then {then}, now {now}"))
        .collect();
    let Ok(catalog) = again.common.choice.catalog() else {
        return lines;
    };
    for then in took_part(earlier) {
        match catalog.look(&then.name) {
            Ok(Standing::Ready(now)) => {
                let hash = now.file.as_deref().and_then(session::hash_of);
                if now.version != then.version {
                    let (name, old, new) = (&then.name, &then.version, &now.version);
                    lines.push(format!("{name}: then {old}, now {new}"));
                } else if then.sha256.is_some() && hash != then.sha256 {
                    lines.push(format!("{}: another build of {}", then.name, now.version));
                }
            }
            Ok(Standing::Buildable(from)) => lines.push(format!("{}: {from}", then.name)),
            Ok(Standing::Unavailable(why)) => lines.push(format!("{}: {}", then.name, why.reason)),
            // The line of its allocator speaks for a variant.
            Err(_) => {}
        }
    }
    lines
}
