//! `mallard profile --start PID`, `--stop PID` and `--dump PID`: requests to a running process.

use std::process::ExitCode;

use anyhow::Result;
use mallard_inspect::request::Request;

use crate::processes::request;

/// Sampling in a running process. It begins and ends at once, for all threads. A process sees the
/// request when it allocates.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Running processes")]
pub struct Control {
    /// Start sampling in this process
    #[arg(long, value_name = "PID", conflicts_with_all = ["stop", "dump", "diff"])]
    start: Option<u32>,

    /// Stop sampling in this process; its samples stay
    #[arg(long, value_name = "PID", conflicts_with_all = ["dump", "diff"])]
    stop: Option<u32>,

    /// Let this process write a profile itself, where its option prof_prefix says
    #[arg(long, value_name = "PID", conflicts_with = "diff")]
    dump: Option<u32>,

    /// With --start: mean bytes between samples as a base-2 logarithm, such as 16; forgets the
    /// samples so far if it differs, also while the process samples [default: the last one; at
    /// first that of the process's options]
    #[arg(long, value_name = "N", requires = "start", value_parser = clap::value_parser!(u32).range(0..64))]
    lg_sample: Option<u32>,

    /// With --start, --stop and --dump: allow the request to a process that was not started with
    /// MALLOC_CONF=export_stats:true; this writes eight bytes into its memory and requires
    /// permission to debug it
    #[arg(long)]
    write_memory: bool,
}

impl Control {
    /// Does what was asked for; `None` if nothing was.
    pub fn run(&self) -> Option<Result<ExitCode>> {
        let start = (self.start).map(|pid| (pid, Request::Start(self.lg_sample)));
        let stop = self.stop.map(|pid| (pid, Request::Stop));
        let dump = self.dump.map(|pid| (pid, Request::Dump));
        let (pid, request) = start.or(stop).or(dump)?;
        Some(request::ask(pid, request, self.write_memory))
    }
}
