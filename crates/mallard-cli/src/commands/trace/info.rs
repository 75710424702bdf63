//! `mallard trace info`: what a recording holds, in figures.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use mallard_report::units;
use mallard_trace::event::{KINDS, Kind, UNIT_NS};
use mallard_trace::summary::{self, Process};
use mallard_trace::{Recording, description};
use serde_json::json;

use super::Input;
use crate::recording::{open, warn_of_state};
use crate::terminal::output;

/// Summarize a recording
///
/// Shows processes, threads, calls by kind, sizes, live bytes, blocks that another thread freed,
/// and whether begin and end of blocks alternate at every address.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    input: Input,

    /// Show all processes, not only those with the most calls
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Processes that are shown without `--all`.
const SHOWN_PROCESSES_MAX: usize = 5;

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.input.file;
    let mut recording = open(path)?;
    let summary = summary::of(&mut recording)?;
    if summary.processes.is_empty() {
        warn_of_state(path, &recording);
        bail!("{} holds no events", path.display());
    }
    let length = std::fs::metadata(path)?.len();
    if options.json {
        let all: Vec<_> = summary
            .processes
            .iter()
            .map(|(number, process)| as_json(*number, process, &recording))
            .collect();
        let value = json!({
            "start": recording.start,
            "end": recording.end,
            "bytes": length,
            "cut_bytes": recording.state().cut,
            "damaged_chunks": recording.state().damaged,
            "processes": all,
        });
        output::text(&format!("{value:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    head(&mut text, &recording, length, &summary)?;
    let mut processes: Vec<_> = summary.processes.iter().collect();
    processes.sort_by_key(|(_, process)| std::cmp::Reverse(process.calls));
    let (shown, rest) = if options.all {
        (&processes[..], &[][..])
    } else {
        processes.split_at(processes.len().min(SHOWN_PROCESSES_MAX))
    };
    for (number, process) in shown {
        text.push('\n');
        one(&mut text, **number, process, &recording)?;
    }
    if !rest.is_empty() {
        let calls: u64 = rest.iter().map(|(_, process)| process.calls).sum();
        writeln!(
            text,
            "\n{} more processes with {} calls: --all",
            rest.len(),
            units::grouped(calls as f64)
        )?;
    }
    output::text(&text)?;
    warn_of_state(path, &recording);
    Ok(ExitCode::SUCCESS)
}

fn head<R>(
    text: &mut String,
    recording: &Recording<R>,
    length: u64,
    summary: &summary::Summary,
) -> Result<()> {
    let start = &recording.start;
    let calls: u64 = summary.processes.values().map(|p| p.calls).sum();
    writeln!(
        text,
        "{}, {}, {}",
        start.program, start.made_by, start.started
    )?;
    if !start.cpu.is_empty() {
        writeln!(
            text,
            "{} · {} CPUs · {}",
            start.cpu, start.cpus, start.kernel
        )?;
    }
    writeln!(
        text,
        "{} events in {}: {:.1} bytes each · clock: {}",
        units::grouped(calls as f64),
        units::bytes(length as f64),
        length as f64 / calls.max(1) as f64,
        start.clock
    )?;
    for note in &start.notes {
        writeln!(text, "note: {note}")?;
    }
    if let Some(end) = &recording.end {
        writeln!(
            text,
            "ended {} · {} dropped · threads waited {} times, {:.3} s in all",
            end.ended, end.dropped, end.stalls, end.stalled_seconds
        )?;
        for line in &end.not_recorded {
            writeln!(text, "not recorded: {line}")?;
        }
    }
    Ok(())
}

fn one<R>(text: &mut String, number: u32, p: &Process, recording: &Recording<R>) -> Result<()> {
    let process = recording.processes.get(&number);
    let title = process.map_or(format!("process {number}"), |process| {
        title(number, process)
    });
    writeln!(text, "{title}")?;
    let mut line = |name: &str, value: String| writeln!(text, "  {name:<11} {value}");
    let seconds = ((p.last - p.first) * UNIT_NS) as f64 / 1e9;
    line(
        "time",
        format!(
            "{} · {} · {} calls, {} per second",
            units::seconds(seconds),
            units::plural(p.threads as usize, "thread"),
            units::grouped(p.calls as f64),
            units::grouped(p.calls as f64 / seconds.max(1e-9))
        ),
    )?;
    let shown = KINDS.iter().filter(|kind| kind.is_call());
    let kinds: Vec<String> = shown
        .map(|kind| (kind, p.kinds[*kind as usize - 1]))
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{} {}", units::grouped(count as f64), name(*kind)))
        .collect();
    line("calls", kinds.join(", "))?;
    line(
        "sizes",
        format!(
            "median {} · 99 % up to {} · {} requested",
            units::bytes(quantile(p, 0.5)),
            units::bytes(quantile(p, 0.99)),
            units::bytes(p.requested as f64)
        ),
    )?;
    line(
        "live",
        format!(
            "at most {} · at the end {} in {} blocks",
            units::bytes(p.peak_bytes as f64),
            units::bytes(p.live_bytes as f64),
            p.live_blocks
        ),
    )?;
    line("", curve(&p.curve))?;
    line(
        "freed by",
        format!(
            "another thread: {} of {} ({:.1} %)",
            p.freed_elsewhere,
            p.ended,
            100.0 * p.freed_elsewhere as f64 / p.ended.max(1) as f64
        ),
    )?;
    let peak = recording.memory.iter().filter(|s| s.process == number);
    if let Some(peak) = peak.map(|sample| sample.rss).max() {
        line("RSS", format!("at most {}", units::bytes(peak as f64)))?;
    }
    line(
        "order",
        format!(
            "{} mended, {} lost, {} ends of blocks that are not in the recording",
            p.lives.mended, p.lives.lost, p.lives.unknown
        ),
    )?;
    Ok(())
}

fn title(number: u32, process: &description::Process) -> String {
    let mut title = format!(
        "process {number} · pid {} · {}",
        process.pid, process.program
    );
    if let Some(parent) = process.forked_from {
        let _ = write!(title, " · forked from process {parent}");
    }
    if !process.allocator.is_empty() {
        let _ = write!(title, " · malloc of {}", process.allocator);
    }
    if !process.options.is_empty() {
        let _ = write!(title, " ({})", process.options);
    }
    title
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::ReallocEnd => "realloc",
        kind => kind.name(),
    }
}

/// The upper end of the class of sizes below which this share of requests lies.
fn quantile(p: &Process, share: f64) -> f64 {
    let all: u64 = p.sizes.iter().sum();
    let mut below = 0;
    for (bits, count) in p.sizes.iter().enumerate() {
        below += count;
        if below as f64 >= all as f64 * share {
            return ((1_u128 << bits) - 1) as f64;
        }
    }
    0.0
}

/// A line of blocks of eight heights.
fn curve(points: &[u64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = points.iter().copied().max().unwrap_or(0).max(1);
    points
        .chunks(2)
        .map(|pair| pair.iter().copied().max().unwrap_or(0))
        .map(|value| HEIGHTS[(u128::from(value) * 7 / u128::from(most)) as usize])
        .collect()
}

fn as_json<R>(number: u32, p: &Process, recording: &Recording<R>) -> serde_json::Value {
    let kinds: serde_json::Map<String, serde_json::Value> = KINDS
        .iter()
        .map(|kind| (kind.name().to_owned(), p.kinds[*kind as usize - 1].into()))
        .collect();
    json!({
        "number": number,
        "process": recording.processes.get(&number),
        "seconds": ((p.last - p.first) * UNIT_NS) as f64 / 1e9,
        "threads": p.threads,
        "calls": p.calls,
        "kinds": kinds,
        "requested_bytes": p.requested,
        "peak_live_bytes": p.peak_bytes,
        "live_bytes": p.live_bytes,
        "live_blocks": p.live_blocks,
        "freed_by_another_thread": p.freed_elsewhere,
        "ended": p.ended,
        "live_curve": p.curve,
        "sizes_by_bits": p.sizes,
        "mended": p.lives.mended,
        "lost": p.lives.lost,
        "unknown": p.lives.unknown,
    })
}
