//! `mallard`, the lab: runs programs and experiments on Mallard and its peers, side by side.
//!
//! Each command is a module: [`bench`] (the seeds' experiments, and the full [`suite`]), [`compare`] (the user's own
//! program), [`exec`] (`mallard run`), [`list`] (`mallard allocators`). The first two share the
//! [`race`], which lets allocators take turns on rows of measurements as often as [`runs`] says, the
//! [`folder`] that their results are written to, and the [`session`] around both: allocators made
//! ready, progress, a way to stop. What is measured comes from `mallard_measure`, what it is measured on from
//! `mallard_allocators`, how it is shown from `mallard_report`.

mod amount;
mod args;
mod bench;
mod compare;
mod contention;
mod exec;
mod experiments;
mod folder;
mod list;
mod machine;
mod progress;
mod race;
mod runs;
mod say;
mod session;
mod suite;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.command {
        Command::Bench(options) if options.contention => contention::run(&options),
        Command::Bench(options) => bench::run(&args.own, &options),
        Command::Compare(options) => compare::run(&args.own, &options),
        Command::Run(options) => exec::run(&args.own, &options),
        Command::Allocators => list::run(&args.own),
    };
    outcome.unwrap_or_else(|error| {
        let prefix = console::style("error:").red().bold().for_stderr();
        eprintln!("{prefix} {error:#}");
        ExitCode::from(exec::code_of(&error))
    })
}
