//! The table of a program's processes.

use mallard_report::units::count;
use unicode_width::UnicodeWidthStr;

use super::program::{Ran, end_of};

/// So many processes have a line; of more, those with most.
const LINES_MAX: usize = 20;
/// So many numbers of processes are listed.
const PIDS_MAX: usize = 6;

/// A line for each process, with a figure of it. Of very many, those of most weight are shown, and
/// `all` says where the others are.
pub fn processes(
    ran: &Ran,
    figure_name: &str,
    figure: impl Fn(usize) -> String,
    weight: impl Fn(usize) -> i128,
    all: Option<&str>,
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
    let mut text = aligned(&lines);
    if let more @ 1.. = ran.processes.len() - shown.len() {
        let all = all.map_or_else(String::new, |all| format!("; {all}"));
        text.push_str(&format!("{} more{all}\n", count(more as f64)));
    }
    text.push_str(&unknown(ran));
    text
}

/// Lines of cells under each other: the first and the third column to the right, others to the
/// left.
pub fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].width()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let pad = " ".repeat(widths[column].saturating_sub(cell.width()));
            match column {
                0 | 2 => format!("{pad}{cell}"),
                _ => format!("{cell}{pad}"),
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
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
