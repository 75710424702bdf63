//! `mallard trace dump`: the events as text.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;
use mallard_trace::Event;
use mallard_trace::event::UNIT_NS;

use super::Input;
use crate::recording::{open, warn_of_state};

/// Print the events of a recording as text, in the order of their times
///
/// One line for each event: seconds, process/thread, what happened, address, size.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    input: Input,

    /// Only this process, by its number in the recording
    #[arg(long, value_name = "N")]
    process: Option<u32>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.input.file;
    let mut recording = open(path)?;
    let mut numbers: Vec<u32> = recording.threads.keys().map(|key| key.0).collect();
    numbers.dedup();
    let mut out = BufWriter::new(io::stdout().lock());
    for number in numbers {
        if options.process.is_some_and(|wanted| wanted != number) {
            continue;
        }
        let mut merged = recording.merged(number);
        while let Some((thread, event)) = merged.next_event()? {
            match line(&mut out, number, thread, event) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    return Ok(ExitCode::SUCCESS);
                }
                written => written?,
            }
        }
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    drop(out);
    warn_of_state(path, &recording);
    Ok(ExitCode::SUCCESS)
}

fn line(out: &mut impl Write, process: u32, thread: u32, event: Event) -> io::Result<()> {
    let seconds = (event.when * UNIT_NS) as f64 / 1e9;
    write!(out, "{seconds:.9} {process}/{thread} {}", event.kind.name())?;
    if event.kind.has_address() {
        write!(out, " {:#x}", event.address)?;
    }
    if event.kind.has_size() {
        write!(out, " {}", event.size)?;
    }
    if event.align > 0 {
        write!(out, " align {}", 1_u64 << event.align)?;
    }
    writeln!(out)
}
