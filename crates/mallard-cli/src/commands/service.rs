//! `mallard service`: the presets, and a trial of a description.

use std::process::ExitCode;

use anyhow::Result;
use mallard_report::metrics;
use mallard_runner::Launcher;
use mallard_service::{Service, presets};

use crate::allocators::choice::{self, Choice};
use crate::service::work::{self, Work};
use crate::terminal::exit::Interrupted;
use crate::terminal::output::{self, say};
use crate::terminal::progress::Spinner;
use crate::{service, session};

/// List the presets of services, print one as a file to start from, or try one
///
/// The description of a service says what starts a server, when it is ready, what loads it, how it
/// is stopped, and which figures its load reports. compare, diagnose, record, baseline and tune
/// take one with --service.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Preset to print, or with --try a preset or a TOML file
    #[arg(value_name = "NAME|FILE")]
    pub name: Option<String>,

    /// Run it once and print its figures
    #[arg(long = "try", requires = "name")]
    pub trial: bool,

    /// How long the load takes
    #[arg(long, value_name = "N", default_value_t = mallard_service::file::LOAD_SECONDS)]
    pub seconds: u32,

    #[command(flatten)]
    pub choice: Choice,
}

const EXAMPLES: &str = "\
Examples:
  mallard service                          the presets
  mallard service redis > redis.toml       a file to change
  mallard service --try redis.toml         does it work, and what does it measure?
  mallard service --try nginx -a mallard   on Mallard instead of glibc";

pub fn run(options: &Options) -> Result<ExitCode> {
    let Some(name) = &options.name else {
        for (name, _) in presets::ALL {
            let service = presets::service(name).expect("it is a preset");
            say!("{name:<10} {}", service.about)?;
        }
        say!(
            "\nPrint one with `mallard service NAME`; use it with `mallard compare --service NAME`."
        )?;
        return Ok(ExitCode::SUCCESS);
    };
    let service = service::named(name)?;
    if options.trial {
        return attempt(options, &service);
    }
    if let Some(text) = presets::text(name) {
        output::text(text)?;
    } else {
        say!(
            "{name} is a valid description of `{}`; try it with --try",
            service.name
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn attempt(options: &Options, service: &Service) -> Result<ExitCode> {
    let allocator = choice::one(&options.choice, "glibc", "service")?;
    let stop = session::stop_on_signals()?;
    let launcher = Launcher::new(stop.clone())?;
    let work = Work::new(service, &launcher, options.seconds, None)?;
    let spec = work.spec(&allocator, None).map_err(anyhow::Error::msg)?;
    let spinner = Spinner::new();
    spinner.show(format!("trying {} on {}", service.name, allocator.name));
    let run = work.once(&launcher, &spec);
    drop(spinner);
    if stop.requested() {
        return Err(Interrupted.into());
    }
    let run = run.map_err(|failure| work::failed(&failure))?;
    say!("{} on {}:", service.name, allocator.name)?;
    for metric in work.metrics() {
        if let Some(figure) = run.metric(&metric.name) {
            say!("  {:<10} {}", metric.name, metrics::figure(&metric, figure))?;
        }
    }
    say!("{}", service::about_loop(service))?;
    Ok(ExitCode::SUCCESS)
}
