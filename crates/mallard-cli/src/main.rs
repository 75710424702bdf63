//! `mallard`, the lab: runs programs and experiments on Mallard and other allocators, side by side.
//!
//! [`commands`] has a module for each command, and [`defaults`] gives them options that are not
//! typed, from a project's file. What several commands need lies in rooms below them:
//!
//! - [`subject`] is what `baseline` and `tune` measure: a program, a [`service`] or a
//!   [`recording`].
//! - [`session`] prepares allocators, stops on a signal, and describes, shows and writes results.
//! - [`profiles`] reads heap profiles and gives them names, and [`processes`] looks at the running
//!   processes on Mallard.
//! - [`workloads`] are the lab's own programs, with the conditions under which they run.
//! - [`race`] is a row of measurements, in which allocators take turns.
//! - [`options`] are those of several commands, and [`allocators`] says which ones a command uses.
//! - [`terminal`] is for output, progress and exit codes.
//!
//! A module uses only modules below it, so no two use each other, directly or over others.
//! `mallard_runner` runs and measures a process, `mallard_allocators` finds and builds allocators,
//! `mallard_judge` judges the figures, and `mallard_report` shows them.

mod allocators;
mod commands;
mod defaults;
mod options;
mod processes;
mod profiles;
mod race;
mod recording;
mod service;
mod session;
mod subject;
mod terminal;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

use commands::Args;
use terminal::exit;

fn main() -> ExitCode {
    let outcome = defaults::words().and_then(|words| Args::parse_from(words).command.run());
    outcome.unwrap_or_else(|error| {
        let prefix = console::style("error:").red().bold().for_stderr();
        eprintln!("{prefix} {error:#}");
        ExitCode::from(exit::code_of(&error))
    })
}
