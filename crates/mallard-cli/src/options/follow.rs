//! How a program is followed with all processes that it starts.

use std::time::Duration;

use crate::options::values::duration;

/// The processes of a program.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Processes of the program")]
pub struct FollowOptions {
    /// Sum up the processes of each program
    #[arg(long, requires = "program")]
    pub by_program: bool,

    /// How long to wait for processes that outlive the program, such as daemons; Ctrl-C ends the
    /// wait earlier [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "program")]
    pub wait: Option<Duration>,

    /// Do not stop processes for a moment when they begin and end, as a debugger does, but read
    /// them from time to time: for programs that are debuggers themselves. What a process that ends
    /// by a signal or by _exit did last is missed then
    #[arg(long, requires = "program")]
    pub no_trace: bool,
}

const WAIT: Duration = Duration::from_secs(30);

impl FollowOptions {
    pub fn wait(&self) -> Duration {
        self.wait.unwrap_or(WAIT)
    }
}
