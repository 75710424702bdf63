//! The text for a terminal, the Markdown and the CSV.

use std::fmt::Write as _;

use super::{ALL, Heap, Misuse, Outcome, Program};
use crate::TerminalOptions;
use crate::html::cell;
use crate::terminal::sheet::{Field, Sheet, Tone};
use crate::units;

/// The text for a terminal.
pub fn text(m: &Misuse, options: TerminalOptions) -> String {
    let names = m.names();
    let mut header = vec![Field::plain("kind"), Field::plain("programs")];
    header.extend(names.iter().map(|name| Field::new(*name, Tone::Strong)));
    let row = |(kind, programs): &(String, Vec<&Program>)| {
        let tone = if kind == ALL {
            Tone::Strong
        } else {
            Tone::Plain
        };
        let mut fields = vec![
            Field::new(kind, tone),
            Field::plain(programs.len().to_string()),
        ];
        let counts = names.iter().map(|name| counts(m, programs, name));
        fields.extend(counts.map(|counts| Field::new(counts, tone)));
        fields
    };
    let sheet = Sheet {
        leading: 2,
        header,
        rows: m.rows().iter().map(row).collect(),
    };
    let mut text = format!("{}\n\n{}\n", m.sentence(), caption(m));
    text += &sheet.render(options.width, options.color);
    for (heap, programs) in only_glibc(m) {
        let _ = write!(text, "\nglibc catches on {heap}, and mallard does not:\n");
        for line in programs {
            let _ = writeln!(text, "  {line}");
        }
    }
    for allocator in &m.allocators {
        if let Some(why) = &allocator.unavailable {
            let _ = write!(text, "\n{} was not there: {why}\n", allocator.name);
        }
    }
    text
}

/// What the figures of the table are.
pub(super) fn caption(m: &Misuse) -> String {
    match m.seeds {
        0 => "Programs caught on a fresh heap.".to_owned(),
        seeds => format!(
            "Programs caught on a fresh heap / on an aged one ({}, median).",
            units::plural(seeds as usize, "seed")
        ),
    }
}

/// The field of an allocator in a row.
pub(super) fn counts(m: &Misuse, programs: &[&Program], allocator: &str) -> String {
    let fresh = m.caught(programs, allocator, Heap::Fresh);
    match m.seeds {
        0 => fresh.to_string(),
        _ => format!("{fresh} / {}", m.caught(programs, allocator, Heap::Aged)),
    }
}

/// For each kind of heap, what glibc catches there and Mallard does not: a line for each name.
pub(super) fn only_glibc(m: &Misuse) -> Vec<(&'static str, Vec<String>)> {
    let heaps = [(Heap::Fresh, "a fresh heap"), (Heap::Aged, "an aged heap")];
    let of = heaps.map(|(heap, shown)| (shown, by_name(&m.only_glibc(heap))));
    of.into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .collect()
}

/// The sizes of each name in one line.
fn by_name(programs: &[&Program]) -> Vec<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for program in programs {
        let size = units::size(program.size);
        match lines.iter_mut().find(|(name, _)| *name == program.name) {
            Some((_, sizes)) => *sizes += &format!(", {size}"),
            None => lines.push((program.name.clone(), size)),
        }
    }
    let lines = lines.into_iter();
    lines
        .map(|(name, sizes)| format!("{name} ({sizes})"))
        .collect()
}

/// The table as Markdown, with each program below it.
pub fn markdown(m: &Misuse) -> String {
    let names = m.names();
    let versions: Vec<String> = m
        .allocators
        .iter()
        .map(|a| format!("{} {}", a.name, a.version))
        .collect();
    let mut text = format!(
        "**{}**\n\n{} {}; {}.\n\n",
        m.sentence(),
        caption(m),
        m.started,
        versions.join(", ")
    );
    let head = |text: &mut String, first: &[&str]| {
        let columns = first.iter().chain(&names);
        let columns: Vec<String> = columns.map(|column| cell(column)).collect();
        let rule = vec!["---"; columns.len()].join(" | ");
        let _ = write!(text, "| {} |\n| {rule} |\n", columns.join(" | "));
    };
    head(&mut text, &["kind", "programs"]);
    for (kind, programs) in m.rows() {
        let counts: Vec<String> = names
            .iter()
            .map(|name| counts(m, &programs, name))
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            cell(&kind),
            programs.len(),
            counts.join(" | ")
        );
    }
    text += "\n<details><summary>Each program</summary>\n\n";
    head(&mut text, &["program", "what it does"]);
    for program in &m.misuses {
        let ends: Vec<String> = names.iter().map(|name| ends(program, name)).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            cell(&program.shown()),
            cell(&program.what),
            ends.join(" | ")
        );
    }
    text += "\n</details>\n";
    text
}

/// How a program ended on an allocator: on the fresh heap, and on how many of the aged ones it was
/// caught.
pub(super) fn ends(program: &Program, allocator: &str) -> String {
    let Some(ran) = program.on(allocator) else {
        return units::ABSENT.to_owned();
    };
    let fresh = shown(&ran.plain);
    let caught = ran
        .aged
        .iter()
        .filter(|outcome| outcome.is_caught())
        .count();
    match ran.aged.len() {
        0 => fresh,
        all => format!("{fresh} · {caught} of {all}"),
    }
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Stopped(signal) => match *signal {
            6 => "stopped".to_owned(),
            7 | 11 => "fault".to_owned(),
            signal => format!("signal {signal}"),
        },
        Outcome::Prevented => "prevented".to_owned(),
        Outcome::WentOn => "went on".to_owned(),
        Outcome::TimedOut => "hung".to_owned(),
        Outcome::Failed(why) => format!("failed: {why}"),
    }
}

/// One line for each program and allocator.
pub fn csv(m: &Misuse) -> String {
    let mut text = "program,size,kind,counted,allocator,fresh,aged_caught,aged,said\n".to_owned();
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    for program in &m.misuses {
        for ran in &program.ran {
            let caught = ran
                .aged
                .iter()
                .filter(|outcome| outcome.is_caught())
                .count();
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{caught},{},{}",
                program.name,
                program.size,
                program.kind,
                program.counted,
                ran.allocator,
                quoted(&shown(&ran.plain)),
                ran.aged.len(),
                quoted(&ran.said)
            );
        }
    }
    text
}
