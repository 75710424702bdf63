//! `mallard run`: replaces this process with a program on Mallard.

mod family;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow, ensure};
use mallard_allocators::{environment_of_user, program};
use mallard_formats::variables::{MALLARD_CONF, MALLOC_CONF};
use mallard_report::stats::SUBJECT;

use crate::allocators::choice::{self, Choice};

/// Run a program on Mallard
///
/// The program replaces this command's process, so its input, output, signals and exit code pass
/// through unchanged.
///
/// With the options prof:true,prof_final:true, every process that the program starts leaves a
/// profile, even if it ends by a signal or by _exit, and they are listed on standard error when the
/// program ends. The processes are traced for that, as a debugger does.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard run [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub struct Options {
    /// Options for the allocator, such as narenas:4,dirty_decay_ms:1000; checked before the program
    /// starts, and read after those of MALLARD_CONF
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// Do not trace processes that write profiles at their ends: for programs that are debuggers
    /// themselves
    #[arg(long)]
    pub no_trace: bool,

    /// Find misuse of the heap: the option hardened:true, and copies by memcpy, strcpy and the like
    /// end the program before they leave their block
    #[arg(long)]
    pub hardened: bool,

    #[command(flatten)]
    pub choice: Choice,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard run -- redis-server
  mallard run --conf narenas:4,dirty_decay_ms:1000 -- ./server
  mallard run --hardened -- ./server
  mallard run --conf prof:true,prof_final:true -- ./server   leaves profiles of all its processes
  mallard run -a jemalloc -- ./server";

const HARDENED: &str = "hardened:true";

/// Has the library of checked copies loaded behind the allocator.
fn check_copies(environment: &mut [(String, String)]) -> Result<()> {
    let checked = mallard_allocators::install_checked().map_err(|problem| anyhow!("{problem}"))?;
    let preload = (environment.iter_mut())
        .find(|(name, _)| name == "LD_PRELOAD")
        .context("nothing is preloaded")?;
    preload.1 = format!("{}:{}", preload.1, checked.display());
    Ok(())
}

/// Returns only if the program could not be started.
pub fn run(options: &Options) -> Result<ExitCode> {
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    // A mistake in a name is reported before one in the program.
    options.choice.resolve_for("run")?;
    let program = program::check(&name.to_string_lossy())?;
    let allocator = choice::one(&options.choice, SUBJECT, "run")?;
    program.takes(&allocator)?;
    let mut conf = options.conf.clone();
    if options.hardened {
        ensure!(
            allocator.catalog_name() == SUBJECT,
            "--hardened is for {SUBJECT}: {} has no such mode",
            allocator.name
        );
        let given = conf.map(|given| format!(",{given}"));
        conf = Some(format!("{HARDENED}{}", given.unwrap_or_default()));
    }
    choice::check_options(std::slice::from_ref(&allocator), conf.as_deref())?;
    let mut environment = environment_of_user(&allocator, conf.as_deref());
    if options.hardened {
        check_copies(&mut environment)?;
    }
    if allocator.catalog_name() == SUBJECT && !options.no_trace {
        // Those that are set already, and those of this call behind them.
        let given = |name: &str| {
            let own = environment.iter().find(|(known, _)| known == name);
            own.map_or_else(
                || std::env::var(name).unwrap_or_default(),
                |(_, value)| value.clone(),
            )
        };
        let strings = [MALLOC_CONF, MALLARD_CONF].map(given);
        if let Some(prefix) = family::prefix_of(&[&strings[0], &strings[1]]) {
            family::follow(prefix);
        }
    }
    let error = Command::new(&program.path)
        .arg0(name)
        .args(arguments)
        .envs(environment)
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.path.display()))
}
