//! `mallard doctor`: finds misuse of the heap in a program, and the line that does it.
//!
//! The first run checks every block ([`plan`] has the options of both). What is found at the moment
//! of the mistake is complete. Damage that a later call found has the stack of that call, so a
//! second run guards the blocks of the same allocation site, where the mistake faults. [`session`]
//! runs the program, [`report`] reads what the library says, [`outcome`] puts it together with
//! names, a [`picture`] and [`advice`]. [`core`] explains addresses in a core file.

mod advice;
mod core;
mod outcome;
mod picture;
mod plan;
mod report;
mod session;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mallard_allocators::program;
use mallard_report::doctor::{self, Doctor};
use mallard_report::stats::SUBJECT;

use crate::allocators::choice::{self, Choice};
use crate::options::search::SearchOptions;
use crate::options::values::time_to_watch;
use crate::profiles::save;
use crate::terminal::exit::CANNOT_TELL;
use crate::terminal::output;
use outcome::Rounds;
use plan::Knowledge;
use session::Setting;

/// Find heap bugs in a program, with the line that does it
///
/// Runs the program on Mallard with all checks on. If damage is found that a write before that call
/// did, the program runs a second time, and every block of the same allocation site lies between
/// closed pages: the write faults at its instruction. A finding has the call stacks of the mistake,
/// of the allocation and of the free, a picture of the block, and what to look for. Nothing is
/// rebuilt; with -g, the stacks have files and lines.
///
/// Found are overflows, underflows, uses after free, double frees, frees of what is no block, and
/// delete of what new[] gave. Children are followed, and each process has findings of its own.
///
/// The exit code is 0 if nothing was found, 1 if something was, 2 for a mistake on the command
/// line, and 3 if it is not known: the program crashed without a finding, or could not be checked.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "mallard doctor [OPTIONS] -- <PROGRAM> [ARGS]...\n       mallard doctor --core <FILE> [--address <ADDRESS>]"
)]
pub struct Options {
    /// Run both runs up to N times, until something is found: for bugs that do not show each time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// End the program after this time in each run, as a server must be
    #[arg(long = "for", value_name = "TIME", value_parser = time_to_watch)]
    time: Option<Duration>,

    /// Make the choices of the runs that are random from this number: on which side blocks are
    /// guarded. Threads and addresses stay as the system has them
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Further options for the library
    #[arg(long, value_name = "STRING")]
    conf: Option<String>,

    /// The outcome as JSON on standard output; the program's own output goes to standard error
    #[arg(long)]
    json: bool,

    /// Write the outcome as a page to this file, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Do not trace the processes, for programs that are debuggers themselves. Then there are no
    /// pictures of the bytes, and crashes have no line
    #[arg(long)]
    no_trace: bool,

    /// Explain addresses in a core file instead: which block is there, how long it is, whether it
    /// is free, and which code allocated it, where the process sampled it
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["repeat", "time", "seed", "conf", "html", "no_trace", "program"]
    )]
    core: Option<PathBuf>,

    /// An address for --core [default: that of the fault, and those in registers] (may be repeated)
    #[arg(long = "address", value_name = "ADDRESS", requires = "core", value_parser = address)]
    addresses: Vec<u64>,

    #[command(flatten)]
    search: SearchOptions,

    /// The program and its arguments
    #[arg(required_unless_present = "core", trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard doctor -- ./test                     exit code 1 if a heap bug was found
  mallard doctor --for 30s -- ./server         ends the server after 30 seconds, twice
  mallard doctor --repeat 20 -- ./race         until it shows, 20 times at most
  mallard doctor --html bugs.html -- ./test    the findings as a page
  mallard doctor --core core.4711              what lies at the address of a crash";

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "expected an address such as 0x7f12a4c0".to_owned())
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(file) = &options.core {
        let explained = core::explain(file, &options.addresses, &options.search)?;
        output::text(&if options.json {
            serde_json::to_string_pretty(&explained)? + "\n"
        } else {
            core::text(&explained)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let found = diagnose(options)?;
    if let Some(path) = &options.html {
        let page = doctor::page(&found);
        save(path, |out| out.write_all(page.as_bytes()))?;
    }
    if options.json {
        output::text(&(serde_json::to_string_pretty(&found)? + "\n"))?;
    } else {
        output::text(&doctor::text(&found))?;
    }
    Ok(
        match (found.findings.is_empty(), outcome::is_known(&found)) {
            (false, _) => ExitCode::FAILURE,
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::from(CANNOT_TELL),
        },
    )
}

fn diagnose(options: &Options) -> Result<Doctor> {
    let found = program::check(&options.program[0].to_string_lossy())?;
    let allocator = choice::one(&Choice::default(), SUBJECT, "doctor")?;
    found.takes(&allocator)?;
    choice::check_options(std::slice::from_ref(&allocator), options.conf.as_deref())?;
    let folder = tempfile::Builder::new()
        .prefix("mallard-doctor-")
        .tempdir()
        .context("cannot make a folder for the reports")?;
    if !session::is_usable(folder.path()) {
        bail!(
            "the name of {} has a comma or a colon, which no option can have: set TMPDIR to another",
            folder.path().display()
        );
    }
    // ^C is for the program; what is known by then is shown.
    let interrupts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&interrupts);
    let _ = ctrlc::set_handler(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let setting = Setting {
        words: &options.program,
        program: &found,
        allocator: &allocator,
        is_quiet: options.json,
        trace: !options.no_trace,
        time: options.time,
        interrupts: &interrupts,
    };
    let knowledge = Knowledge::of(&allocator);
    let further = options.conf.as_deref();
    let mut rounds = Rounds::default();
    for round in 0..options.repeat {
        let seed = options.seed.wrapping_add(round.into());
        let first = plan::first(&knowledge, further);
        tell(&first.purpose);
        let ran = session::run(&setting, &first.options, folder.path())?;
        rounds.add(first.purpose, ran);
        if rounds.is_exact() || rounds.is_interrupted() {
            break;
        }
        let second = plan::second(&knowledge, further, rounds.last(), seed);
        tell(&second.purpose);
        let ran = session::run(&setting, &second.options, folder.path())?;
        rounds.add(second.purpose, ran);
        if !rounds.is_empty() || rounds.is_interrupted() {
            break;
        }
    }
    Ok(outcome::outcome(rounds, options.seed, &options.search))
}

/// Says which run begins. Standard output is the program's.
fn tell(purpose: &str) {
    eprintln!("mallard doctor: {purpose}");
}
