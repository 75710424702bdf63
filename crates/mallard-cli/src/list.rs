//! `mallard allocators`: what is available here, and how to get the rest.

use std::process::ExitCode;

use anyhow::Result;
use console::{StyledObject, style};
use mallard_allocators::{Allocator, Standing, Unavailable};

use crate::say::say;
use crate::session;

pub fn run(own: &[String]) -> Result<ExitCode> {
    let catalog = session::catalog(own)?;
    let names: Vec<&str> = catalog.names().collect();
    let widest = names.iter().map(|name| name.len()).max().unwrap_or(0);
    for name in names {
        let (mark, lines) = entry(&catalog.look(name)?);
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
    say!("✓ ready   + built on first use   ✗ not available here")?;
    say!("Every command accepts --allocator NAME=/path/to/library.so to add another one, or")?;
    say!("'NAME=/path/to/library.so;VARIABLE=VALUE' to add one with variables of its own.")?;
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
