//! Asks a process to sample, to stop that, or to return its free memory, for `top`, `profile`,
//! `export` and `guard`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use mallard_inspect::image::Images;
use mallard_inspect::request::{Consent, Request};
use mallard_inspect::source::Reader;

use crate::terminal::output::say;

/// How long a command waits for a process to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

pub fn consent(write_memory: bool) -> Consent {
    if write_memory {
        Consent::WriteMemory
    } else {
        Consent::SharedOnly
    }
}

/// What was asked, in the past.
pub fn done(request: Request) -> &'static str {
    match request {
        Request::Start(_) => "samples now",
        Request::Stop => "does not sample any more",
        Request::Purge => "returned its free memory",
        Request::Dump => "wrote a profile",
        Request::Guard => "guards blocks now",
        Request::Unguard => "does not guard blocks any more",
    }
}

/// Asks a process and says what came of it.
pub fn ask(pid: u32, request: Request, write_memory: bool) -> Result<ExitCode> {
    let reader = Reader::open(pid, &mut Images::default())?;
    reader.ask(request, consent(write_memory), ANSWER_TIMEOUT)?;
    say!("process {pid} {}", done(request))?;
    Ok(ExitCode::SUCCESS)
}
