//! `--dry-run`: what a session would run, in how many processes, and about how long. Nothing is
//! built, run or written.

use std::process::ExitCode;

use anyhow::Result;
use mallard_allocators::{Allocator, Standing};
use mallard_report::units;

use crate::allocators::choice::{self, Choice};
use crate::terminal::output::say;

/// The allocators of a session that may never be.
pub struct Outlook {
    /// Those that could run now.
    pub ready: Vec<Allocator>,
    /// Those that the session would build first, and the seconds of that.
    pub to_build: Vec<String>,
    build_seconds: u32,
    notices: Vec<String>,
}

impl Outlook {
    pub fn of(command: &str, choice: &Choice) -> Result<Outlook> {
        let mut chosen = choice.resolve_for(command)?;
        let mut outlook = Outlook {
            ready: Vec::new(),
            to_build: Vec::new(),
            build_seconds: 0,
            notices: chosen.only_ready()?.into_iter().collect(),
        };
        let plain = chosen.names.iter().map(|name| (name, None));
        let variants = chosen.variants.iter().map(|v| (&v.allocator, Some(v)));
        for (name, variant) in plain.chain(variants) {
            let shown = variant.map_or(name, |variant| &variant.name);
            match chosen.catalog.look(name)? {
                Standing::Ready(allocator) => outlook.ready.push(match variant {
                    Some(variant) => allocator.variant(&variant.name, &variant.options),
                    None => allocator,
                }),
                Standing::Buildable(_) => {
                    outlook.to_build.push(shown.clone());
                    outlook.build_seconds += chosen.catalog.build_seconds(name);
                }
                Standing::Unavailable(why) => {
                    let reason = &why.reason;
                    outlook
                        .notices
                        .push(format!("{shown} would be skipped: {reason}"));
                }
            }
        }
        if chosen.as_is {
            outlook.ready.push(choice::as_is());
        }
        outlook
            .notices
            .extend(choice::check_options(&outlook.ready, None)?);
        Ok(outlook)
    }

    /// The allocators that would take part.
    pub fn count(&self) -> usize {
        self.ready.len() + self.to_build.len()
    }

    /// Prints the plan: rows with their processes, then all of them and the time.
    pub fn print(&self, rows: &[(String, usize)], runs: &str, time: &str) -> Result<ExitCode> {
        for (row, processes) in rows {
            say!("  {row:<40} {}", processes_of(*processes))?;
        }
        let ready = self.ready.iter().map(|allocator| {
            let version = &allocator.version;
            format!("{} {version}", allocator.name).trim().to_owned()
        });
        let all: Vec<String> = ready.chain(self.to_build.iter().cloned()).collect();
        say!("on {}", all.join(", "))?;
        let processes = rows.iter().map(|(_, processes)| processes).sum();
        say!("{}, {runs}; {time}", processes_of(processes))?;
        if !self.to_build.is_empty() {
            say!(
                "{} would be built first, once, in about {}",
                self.to_build.join(", "),
                choice::about(self.build_seconds)
            )?;
        }
        for notice in &self.notices {
            say!("{notice}")?;
        }
        say!("nothing was run (--dry-run)")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn processes_of(count: usize) -> String {
    match count {
        1 => "1 process".to_owned(),
        _ => format!("{} processes", units::grouped(count as f64)),
    }
}

/// An estimate as a reader takes it.
pub fn about(seconds: f64) -> String {
    format!("about {}", units::elapsed(seconds))
}
