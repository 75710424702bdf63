//! `mallard leak`: runs a program on Mallard, samples every block, and shows what was never freed.
//!
//! Each process that the program starts is read as well, and has leaks of its own ([`found`]).
//! While they run, the live bytes of their call stacks are read from outside. A site whose bytes
//! rise in each of four quarters of the run grows ([`growth`]); all others were allocated once, or
//! at some time. What libraries keep for themselves is left out ([`kept`]).

mod found;
mod growth;
mod json;
mod kept;
mod text;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use mallard_profile::model::Profile;

use crate::options::follow::FollowOptions;
use crate::options::search::SearchOptions;
use crate::profiles::program;
use crate::terminal::output;

/// Find memory that a program never freed
///
/// Runs the program on Mallard, records every block, and shows by site what is still in use at the
/// end: first the sites that grew all the time, then the others. Blocks that the C library, the
/// loader and the runtimes of C++ and Rust keep for themselves until the end are left out.
///
/// All processes that the program starts are followed, and each has its own leaks: children,
/// programs that a shell starts, and daemons, for which --wait is the limit. What a child has from
/// its parent is the parent's. It does not matter whether a process returns from main, calls _exit
/// or ends by a signal. What a shell holds for itself does not count beside what it starts.
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

    /// Only processes of this program count, by the name of its file (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// All leaks as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub follow: FollowOptions,

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
  mallard leak --suppress 'cache::*' --json -- ./test
  mallard leak --only server -- ./test.sh         of all that the script starts, the server's alone
  mallard leak --by-program -- make check         children and their children, summed up by program";

pub fn run(options: &Options) -> Result<ExitCode> {
    let purpose = program::Purpose {
        conf: ",lg_prof_sample:0",
        is_quiet: options.json,
        snapshots: true,
    };
    let ran = program::run(&options.program, &purpose, &options.follow, &options.search)?;
    found::check_names(&ran, options)?;
    let found = found::all(&ran, options)?;
    output::text(&if options.json {
        json::json(&ran, &found, options)?
    } else {
        text::text(&ran, &found, options)?
    })?;
    let has_leaks = found.iter().any(|found| found.has_leaks(options));
    Ok(match (ran.status.success(), has_leaks) {
        (false, _) => program::code_of(ran.status),
        (true, true) => ExitCode::FAILURE,
        (true, false) => ExitCode::SUCCESS,
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
