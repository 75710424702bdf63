//! `mallard allocators`: what is available here, and how to get the rest.

use std::process::ExitCode;

use anyhow::Result;
use console::{StyledObject, style};
use mallard_allocators::{Allocator, Catalog, Standing, Unavailable};

use crate::allocators::choice::{self, Choice};
use crate::allocators::preparation;
use crate::terminal::output::say;

/// List the allocators with their versions and files, or build the missing ones
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// What to do: `list` (the default), or `build` those named, or all that are missing
    #[arg(
        value_name = "list|build",
        value_enum,
        hide_possible_values = true,
        default_value = "list"
    )]
    pub what: Inventory,

    /// The allocators [default: all; those of `build` without the optional ones]
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,

    #[command(flatten)]
    pub choice: Choice,

    /// Write the list as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Inventory {
    List,
    Build,
}

const EXAMPLES: &str = "\
Examples:
  mallard allocators
  mallard allocators build                   the missing ones, once
  mallard allocators build jemalloc mimalloc
  mallard allocators build scudo             an optional one
  mallard allocators --add mine=/opt/lib/libmine.so

The exit code of a list is 1 if an allocator that was named is not ready.";

/// What the list says of a hardened build.
const OPTIONAL: &str = "optional: takes part only if -a names it";

pub fn run(options: &Options) -> Result<ExitCode> {
    let catalog = options.choice.catalog()?;
    let names = match &options.only[..] {
        [] if options.what == Inventory::Build => owned(catalog.usual_names()),
        [] => owned(catalog.names()),
        named => catalog.select(named)?,
    };
    match options.what {
        Inventory::Build => build(&catalog, &names),
        Inventory::List if options.json => json(&catalog, &names),
        Inventory::List => list(&catalog, &names, !options.only.is_empty()),
    }
}

fn owned<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(str::to_owned).collect()
}

fn list(catalog: &Catalog, names: &[String], named: bool) -> Result<ExitCode> {
    let widest = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let (mut all_ready, mut seconds) = (true, 0);
    for name in names {
        let standing = catalog.look(name)?;
        all_ready &= matches!(standing, Standing::Ready(_));
        let optional = catalog.is_optional(name);
        if matches!(standing, Standing::Buildable(_)) && !optional {
            seconds += catalog.build_seconds(name);
        }
        let (mark, mut lines) = entry(&standing);
        if optional {
            lines.push(OPTIONAL.to_owned());
        }
        let mut lines = lines.into_iter();
        let first = lines.next().unwrap_or_default();
        say!(
            "{mark} {}  {first}",
            style(format!("{name:widest$}")).bold()
        )?;
        for line in lines {
            say!("{:indent$}{}", "", style(line).dim(), indent = widest + 4)?;
        }
    }
    say!("")?;
    say!("✓ ready   + can be built   ✗ not available here")?;
    if seconds > 0 {
        let time = choice::about(seconds);
        say!("`mallard allocators build` builds the missing ones, once, in about {time}.")?;
    }
    say!("Every command takes --add NAME=/path/to/library.so for another one, or")?;
    say!("'NAME=/path/to/library.so;VARIABLE=VALUE' for one with variables of its own.")?;
    Ok(if named && !all_ready {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Builds what is missing. An allocator that cannot be had is reported, and the others go on.
fn build(catalog: &Catalog, names: &[String]) -> Result<ExitCode> {
    let mut failed = false;
    for name in names {
        match preparation::prepare(catalog, name)? {
            Ok(allocator) => say!("{} {name} {}", style("✓").green(), allocator.version)?,
            Err(missing) => {
                failed = true;
                say!(
                    "{} {name}: {}",
                    style("✗").red(),
                    unavailable(&missing).join("; ")
                )?;
            }
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn json(catalog: &Catalog, names: &[String]) -> Result<ExitCode> {
    let mut all = Vec::new();
    for name in names {
        let mut one = match catalog.look(name)? {
            Standing::Ready(allocator) => serde_json::json!({
                "name": name,
                "is": "ready",
                "version": allocator.version,
                "file": allocator.file,
                "environment": allocator.environment,
                "reads_options_from": allocator.conf_variable,
            }),
            Standing::Buildable(from) => serde_json::json!({
                "name": name,
                "is": "buildable",
                "from": from,
                "build_seconds": catalog.build_seconds(name),
            }),
            Standing::Unavailable(missing) => serde_json::json!({
                "name": name,
                "is": "unavailable",
                "reason": missing.reason,
                "advice": missing.advice,
            }),
        };
        one["optional"] = catalog.is_optional(name).into();
        all.push(one);
    }
    say!("{}", serde_json::to_string_pretty(&all)?)?;
    Ok(ExitCode::SUCCESS)
}

/// An allocator's mark and the lines about it, the most important first.
fn entry(standing: &Standing) -> (StyledObject<&'static str>, Vec<String>) {
    match standing {
        Standing::Ready(allocator) => (style("✓").green(), ready(allocator)),
        Standing::Buildable(from) => (style("+").cyan(), vec![from.clone()]),
        Standing::Unavailable(missing) => (style("✗").red(), unavailable(missing)),
    }
}

fn ready(allocator: &Allocator) -> Vec<String> {
    let mut lines = vec![allocator.version.clone()];
    lines.push(match &allocator.file {
        Some(file) => file.display().to_string(),
        None => "the C library's own".to_owned(),
    });
    let variables = allocator.environment.iter();
    lines.extend(variables.map(|(name, value)| format!("measured with {name}={value}")));
    if let Some(variable) = &allocator.conf_variable {
        lines.push(format!("reads options from {variable}"));
    }
    lines
}

fn unavailable(missing: &Unavailable) -> Vec<String> {
    let mut lines = vec![missing.reason.clone()];
    if !missing.advice.is_empty() {
        lines.push(format!("to get it: {}", missing.advice));
    }
    lines.extend(
        missing
            .log
            .iter()
            .map(|log| format!("log: {}", log.display())),
    );
    lines
}
