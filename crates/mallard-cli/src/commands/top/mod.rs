//! `mallard top`: the processes on Mallard, live.
//!
//! `mallard_inspect` finds and reads them. A [`row`] keeps the last look at each for rates,
//! [`columns`] is the table, [`json`] its form for scripts, [`screen`] the program on a terminal
//! with its [`details`] of one process, and the [`sites`] of its heap profile. `mallard export`
//! has the same processes, and shows figures in the same form.
//!
//! [`row`]: crate::processes::row

mod columns;
mod details;
mod json;
mod options;
mod screen;
mod sites;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mallard_inspect::memory::core;
use mallard_inspect::process::{About, Identity};

use crate::processes::row::{Row, Watch};
use crate::terminal::output::say;
use columns::Layout;
use details::{TABS, Tab};
pub use options::Options;

/// The columns of a table that no terminal limits.
const TABLE_WIDTH_COLUMNS: usize = 120;

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(file) = &options.core {
        return dead(file, options.json);
    }
    if options.once || options.json {
        return once(options);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("standard input or output is not a terminal; use --once or --json");
    }
    screen::run(options)
}

/// Prints all that is known of the process of a core file.
fn dead(file: &Path, json: bool) -> Result<ExitCode> {
    let shown = file.display().to_string();
    let bytes = core::open(file).with_context(|| format!("cannot read {shown}"))?;
    let Some(bytes) = bytes else {
        bail!("{shown} is not a core file");
    };
    let dead = mallard_inspect::core_file::read(&bytes, None).with_context(|| shown)?;
    let row = Row {
        about: About {
            identity: Identity {
                pid: dead.pid,
                started: 0,
            },
            name: dead.name,
            state: 'X',
            cpu: 0,
        },
        command: String::new(),
        snapshot: dead.snapshot,
        rates: None,
        is_shared: false,
        rss: 0,
        cpu: Duration::ZERO,
    };
    if json {
        say!("{}", json::line(&row))?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("{} {}", row.pid(), row.about.name)?;
    for (tab, ..) in TABS.iter().filter(|(tab, ..)| *tab != Tab::Sites) {
        say!("")?;
        let lines = details::lines(&row, *tab);
        lines.iter().try_for_each(|line| say!("{line}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks twice, for the rates, and prints the second look.
fn once(options: &Options) -> Result<ExitCode> {
    let mut watch = Watch::default();
    let look = |watch: &mut Watch| watch.look(&options.pids, options.matching.as_deref());
    look(&mut watch);
    thread::sleep(options.interval.0);
    let mut rows = look(&mut watch);
    columns::sort(&mut rows, options.sort.0);
    if options.json {
        rows.iter()
            .try_for_each(|row| say!("{}", json::line(row)))?;
    } else {
        table(&rows, options)?;
    }
    Ok(report_unread(&watch, &rows, options))
}

fn table(rows: &[Row], options: &Options) -> Result<()> {
    let size = console::Term::stdout().size_checked();
    let width = size.map_or(TABLE_WIDTH_COLUMNS, |(_, columns)| usize::from(columns));
    let layout = Layout::new(Some(width), options.sort.0);
    say!("{}", layout.header())?;
    rows.iter().try_for_each(|row| say!("{}", layout.row(row)))
}

/// Says on standard error why processes are missing. The exit code says whether one of them was
/// named.
fn report_unread(watch: &Watch, rows: &[Row], options: &Options) -> ExitCode {
    let is_shown = |pid: u32| rows.iter().any(|row| row.pid() == pid);
    let mut code = ExitCode::SUCCESS;
    for &pid in options.pids.iter().filter(|&&pid| !is_shown(pid)) {
        if options.matching.is_none() {
            eprintln!("mallard top: {}", watch.why_not(pid));
            code = ExitCode::FAILURE;
        }
    }
    if options.pids.is_empty() && !options.json && options.matching.is_none() {
        if let Some(line) = unread(watch) {
            eprintln!("{line}");
        }
        if rows.is_empty() {
            eprintln!(
                "no process on Mallard can be read; MALLOC_CONF=export_stats:true makes one readable"
            );
        }
    }
    code
}

/// One line on processes that run on Mallard and cannot be read.
fn unread(watch: &Watch) -> Option<String> {
    let refused = (watch.unread.iter())
        .filter(|(_, error)| matches!(error, mallard_inspect::Error::Refused(_)))
        .count();
    let young = watch.unread.len() - refused;
    let parts: Vec<String> = [
        (refused, "can only be read by root or a debugger"),
        (young, "have no statistics (yet)"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, why)| format!("{n} more {why}"))
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
