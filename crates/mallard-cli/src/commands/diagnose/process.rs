//! `mallard diagnose --pid`: a process that runs already, from outside.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use mallard_inspect::image::Images;
use mallard_inspect::source::Reader;
use mallard_procfs::{about, is_alive};
use mallard_report::diagnosis::{Evidence, Figures};
use mallard_watch::perf::{Refused, Samples, What};

use super::kernel::Kernel;
use super::options::{Options, Way};
use super::sampling::{Subject, verdict};
use super::{figures, observation};
use crate::options::command_line::typed;
use crate::session;
use crate::terminal::exit::usage;
use crate::terminal::progress::Spinner;

const DEFAULT_DURATION: Duration = Duration::from_secs(30);

pub fn run(options: &Options, pid: u32) -> Result<ExitCode> {
    if !is_alive(pid) {
        bail!("there is no process {pid}");
    }
    let stop = session::stop_on_signals()?;
    let started = SystemTime::now();
    let Ok(executable) = fs::read_link(mallard_procfs::path(pid, "exe")) else {
        bail!("process {pid} belongs to another user; watch it as that user or as root");
    };
    let typed = command_line(pid).unwrap_or_else(|| executable.display().to_string());
    let until = Instant::now() + options.duration.unwrap_or(DEFAULT_DURATION);
    let enough = || Instant::now() >= until || stop.requested();
    let stops = match options.way {
        None | Some(Way::Perf) => false,
        Some(Way::Ptrace) => true,
        Some(_) => {
            return Err(usage(
                "--how signals and proc need the probe, which no running process takes",
            ));
        }
    };
    let page = Reader::open(pid, &mut Images::default());
    let no_page = page.as_ref().err().map(ToString::to_string);
    let eyes = observation::Eyes {
        samples: if stops {
            Err(Refused::Unwanted)
        } else {
            Samples::of(pid, What::Time)
        },
        stops,
        kernel: Kernel::of(pid),
        page: page.ok(),
    };
    let spinner = Spinner::new();
    spinner.show(format!("watching process {pid}"));
    let seen = observation::watch(pid, eyes, enough);
    drop(spinner);
    let mut f = Figures {
        runs: 1,
        processes: 1,
        wall_seconds: seen.seconds,
        user_seconds: seen.cpu.0,
        system_seconds: seen.cpu.1,
        faults: seen.faults,
        page_bytes: figures::page_bytes(),
        exit: "runs".to_owned(),
        ..Figures::default()
    };
    refaults(&mut f, &seen);
    seen.shares(&mut f);
    let subject = Subject {
        executable: &executable,
        typed: &typed,
        why: None,
        pid: Some(pid),
        ends: false,
    };
    let mut d = verdict(f, seen, &subject);
    d.ways.push(Evidence {
        what: "live bytes".to_owned(),
        how: match no_page {
            None => "the process’s own page of statistics, as `mallard top` shows it".to_owned(),
            Some(reason) => format!("not known: {reason}"),
        },
    });
    d.program = format!("{} (process {pid})", executable.display());
    super::finish(&mut d, started);
    super::show(options, &d, Path::new(&format!("pid-{pid}")))
}

/// Page faults beyond the growth of resident memory are on pages that had been there before.
fn refaults(f: &mut Figures, seen: &observation::Seen) {
    let at = |moment: Option<&mallard_report::diagnosis::Moment>| moment.map_or(0, |m| m.rss);
    let highest = seen.timeline.iter().map(|moment| moment.rss).max();
    let grown = highest
        .unwrap_or(0)
        .saturating_sub(at(seen.timeline.first()))
        / figures::page_bytes();
    let again = seen.faults.saturating_sub(grown);
    if seen.faults == 0 {
        return;
    }
    f.refaults = Some(again as f64 / seen.faults as f64);
    (f.fault_share, f.refault_share) = figures::fault_shares(seen.cpu, seen.faults, again);
}

/// The command line of a process as one line for a shell.
fn command_line(pid: u32) -> Option<String> {
    let words = about::arguments(pid);
    match &words[..] {
        [] => None,
        // A server that shows its state there has made one text of it, which starts nothing.
        [text] if text.contains(' ') => None,
        words => Some(typed(words)),
    }
}
