//! Commands of the user around the runs of `compare`: `--setup`, `--prepare`, `--cleanup`.
//!
//! The shell runs them, on the lab's own allocator and outside the measurement. A command that
//! fails ends the comparison, because later runs would not measure what the user wants to know. The
//! earlier runs are written, and the exit code is that of a failure.

use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use anyhow::{Result, anyhow, bail};
use mallard_runner::Purpose;

use crate::race::{Beside, Failed};

/// The options of `compare` for commands around the runs.
#[derive(Debug, Default, clap::Args)]
pub struct Hooks {
    /// Shell command to run once before the first run
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,

    /// Shell command to run before each run of a program, measured or not; the description of a
    /// service has its own
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["service", "start"])]
    pub prepare: Option<String>,

    /// Shell command to run once after the last run
    #[arg(long, value_name = "COMMAND")]
    pub cleanup: Option<String>,
}

impl Hooks {
    pub fn set_up(&self) -> Result<()> {
        run("--setup", self.setup.as_deref())
    }

    pub fn clean_up(&self) -> Result<()> {
        run("--cleanup", self.cleanup.as_deref())
    }

    /// What runs before each process.
    pub fn before_each(&self) -> Option<Prepare<'_>> {
        self.prepare.as_deref().map(|command| Prepare {
            command,
            failure: Mutex::new(None),
        })
    }

    /// The commands for the report's settings.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("setup", &self.setup),
            ("before each run", &self.prepare),
            ("cleanup", &self.cleanup),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(name, command)| Some((name, command.clone()?)))
            .collect()
    }
}

fn run(flag: &str, command: Option<&str>) -> Result<()> {
    let Some(command) = command else {
        return Ok(());
    };
    match shell(command) {
        Ok(()) => Ok(()),
        Err(reason) => bail!("{flag} '{command}' {reason}"),
    }
}

/// Runs a command. Its output goes to standard error, beside the progress.
fn shell(command: &str) -> Result<(), String> {
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("failed ({status})")),
        Err(error) => Err(format!("cannot be run: {error}")),
    }
}

/// The command of `--prepare`.
pub struct Prepare<'a> {
    command: &'a str,
    failure: Mutex<Option<String>>,
}

impl Prepare<'_> {
    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().ok()?.clone()
    }
}

/// How a comparison ends that wrote its results, if a command may have failed before or after them.
pub fn ending(
    closed: Result<ExitCode>,
    prepare: Option<String>,
    cleaned: Result<()>,
) -> Result<ExitCode> {
    if let Some(reason) = prepare {
        return match closed {
            Ok(_) => Err(anyhow!(reason)),
            Err(error) => Err(error.context(reason)),
        };
    }
    let code = closed?;
    cleaned.map(|()| code)
}

impl Beside for Prepare<'_> {
    fn before(&self, _: Purpose) -> Result<(), String> {
        let reason = match shell(self.command) {
            Ok(()) => return Ok(()),
            Err(reason) => format!("--prepare '{}' {reason}", self.command),
        };
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(reason.clone());
        }
        Err(reason)
    }

    fn drive(&self, _: u32, _: Purpose) -> Result<(), Failed> {
        Ok(())
    }
}
