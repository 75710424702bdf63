//! The table of a program's processes.

use mallard_report::units::count;
use unicode_width::UnicodeWidthStr;

use super::program::{Ran, end_of};

/// So many processes have a line; of more, those with most.
const LINES_MAX: usize = 20;
/// So many numbers of processes are listed.
const PIDS_MAX: usize = 6;

/// A line for each process, with a figure of it. Of very many, those of most weight are shown.
pub fn processes(
    ran: &Ran,
    figure_name: &str,
    figure: impl Fn(usize) -> String,
    weight: impl Fn(usize) -> i128,
) -> String {
    let mut shown: Vec<usize> = (0..ran.processes.len()).collect();
    if shown.len() > LINES_MAX {
        // The program's own process stays.
        shown[1..].sort_by_key(|&place| std::cmp::Reverse(weight(place)));
        shown.truncate(LINES_MAX);
        shown.sort_unstable();
    }
    let mut lines = vec![["pid", "program", figure_name, "ended"].map(str::to_owned)];
    lines.extend(shown.iter().map(|&place| {
        let process = &ran.processes[place];
        [
            process.pid.to_string(),
            process
                .program
                .replace(|c: char| c.is_control(), "\u{fffd}"),
            figure(place),
            end_of(process.end),
        ]
    }));
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].width());
        cells.max().unwrap_or(0)
    };
    let (pid, program, figure) = (width(0), width(1), width(2));
    let mut text = String::new();
    for [number, name, value, end] in &lines {
        let pad = |cell: &str, width: usize| " ".repeat(width.saturating_sub(cell.width()));
        text.push_str(&format!(
            "{}{number}  {name}{}  {}{value}  {end}\n",
            pad(number, pid),
            pad(name, program),
            pad(value, figure)
        ));
    }
    if let more @ 1.. = ran.processes.len() - shown.len() {
        text.push_str(&format!("{} more; --json has all\n", count(more as f64)));
    }
    text.push_str(&unknown(ran));
    text
}

/// Why the figures of some processes are not known, a line for each reason.
fn unknown(ran: &Ran) -> String {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for process in &ran.processes {
        let Some(reason) = process.why_not() else {
            continue;
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, number)) => *number += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let line = |(reason, number): (&str, usize)| match number {
        1 => format!("not known: {reason}\n"),
        _ => format!("not known, {number} times: {reason}\n"),
    };
    reasons.into_iter().map(line).collect()
}

/// The numbers of some processes.
pub fn pids(ran: &Ran, of: &[usize]) -> String {
    let numbers = of.iter().map(|&place| ran.processes[place].pid.to_string());
    let mut text = numbers.take(PIDS_MAX).collect::<Vec<_>>().join(", ");
    if of.len() > PIDS_MAX {
        text.push_str(&format!(" and {} more", of.len() - PIDS_MAX));
    }
    text
}
