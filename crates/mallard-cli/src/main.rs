//! `mallard`, the lab: runs programs and experiments on Mallard and other allocators, side by side.
//!
//! Each command is a module: [`bench`] (the basic [`experiments`] and the full [`suite`]),
//! [`compare`] (the user's own program), [`exec`] (`mallard run`), [`profile`] (heap profiles),
//! [`leak`] (what is never freed), [`record`], [`replay`] and [`trace`] (what a program allocates,
//! in order), [`top`] (processes, live), [`exporter`] (`mallard export`), [`service`] (servers as
//! subjects), [`tune`] (options), [`baseline`] (limits for changes), [`report`] (results, shown
//! again) and [`list`] (`mallard allocators`). Each takes its allocators by [`choice`], options
//! that are not typed from a project's file ([`defaults`]), and ends with a code of [`exit`].
//! `bench` and `compare` share the [`race`], the [`folder`] and the [`session`]. In a race, the
//! allocators take turns on a row of measurements; [`runs`] decides how often. The folder receives
//! the results. The session prepares allocators, shows progress and stops on a signal.
//!
//! A module uses only modules below it, so no two use each other, directly or over others. At the
//! top are [`args`], which assembles the commands, and [`defaults`]. Below are the commands, which
//! have their own options; options that several share are in [`common`], [`choice`], [`service`]
//! and [`hooks`], and [`values`] reads what is given to them. What two commands need is in a module
//! below both: [`recording`], [`request`], [`preparation`], [`limit`], [`command_line`].
//! `mallard_measure` runs and measures a process, `mallard_allocators` finds and builds allocators,
//! and `mallard_report` shows the results.

mod amount;
mod args;
mod baseline;
mod bench;
mod choice;
mod command_line;
mod common;
mod compare;
mod conditions;
mod defaults;
mod diagnose;
mod diff;
mod exec;
mod exit;
mod experiments;
mod export;
mod exporter;
mod folder;
mod hooks;
mod lazy_free;
mod leak;
mod limit;
mod list;
mod machine;
mod noise;
mod outlook;
mod output;
mod preparation;
mod profile;
mod progress;
mod race;
mod record;
mod recording;
mod replay;
mod report;
mod request;
mod runs;
mod service;
mod session;
mod setting;
mod shell;
mod subject;
mod suite;
mod top;
mod trace;
mod tune;
mod values;
mod workloads;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};

fn main() -> ExitCode {
    let outcome = defaults::words().and_then(|words| run(Args::parse_from(words).command));
    outcome.unwrap_or_else(|error| {
        let prefix = console::style("error:").red().bold().for_stderr();
        eprintln!("{prefix} {error:#}");
        ExitCode::from(exit::code_of(&error))
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Bench(options) => bench::run(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Diff(options) => diff::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Run(options) => exec::run(&options),
        Command::Profile(options) => profile::run(&options),
        Command::Leak(options) => leak::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Export(options) => exporter::run(&options),
        Command::Diagnose(options) => diagnose::run(&options),
        Command::Record(options) => record::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Baseline(options) => baseline::run(&options),
        Command::Tune(options) => tune::run(&options),
        Command::Service(options) => service::list::run(&options),
        Command::Allocators(options) => list::run(&options),
        Command::Completions(options) => shell::completions(&options, Args::command()),
        Command::Man(options) => shell::man(&options, Args::command()),
    }
}
