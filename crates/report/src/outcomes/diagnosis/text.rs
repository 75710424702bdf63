//! A diagnosis on the terminal.

use crate::units::percent;

use super::{Calls, Diagnosis, Figures, tried, word};
use crate::units;
use mallard_judge::diagnose::fault_share;

const BAR_COLUMNS: usize = 40;

/// The diagnosis as text of this width.
pub fn text(d: &Diagnosis, width: usize) -> String {
    let mut out = String::new();
    let width = width.clamp(60, 140);
    const QUESTION: &str = "Is malloc the bottleneck?";
    if d.verdicts.is_empty() {
        let answer = format!("{} {}", word(d.answer), d.sentence);
        out += &wrapped(&format!("{QUESTION}   "), &answer, width);
    } else {
        out += &format!("{QUESTION}\n");
    }
    for verdict in &d.verdicts {
        let head = format!("  {:<10}", verdict.name());
        out += &wrapped(&head, &verdict.text(), width);
    }
    out.push('\n');
    let f = &d.figures;
    out += &format!("  {}\n", title(f));
    if f.inside.is_some() {
        out += &format!("  {}\n", bar(f));
    }
    out.push('\n');
    for (name, line) in lines(f) {
        out += &wrapped(&format!("  {name:<10}"), &line, width);
    }
    out.push('\n');
    let reasons: Vec<String> = d
        .troubles
        .iter()
        .map(|t| format!("{} ({})", t.what, t.because))
        .collect();
    if !reasons.is_empty() {
        out += &wrapped("  because   ", &format!("{}.", reasons.join("; ")), width);
    }
    if let Some(takes) = &d.takes {
        out += &wrapped(
            "  instead   ",
            &format!("{} ({}).", takes.what, takes.because),
            width,
        );
    }
    for note in &d.notes {
        out += &wrapped("  note      ", note, width);
    }
    out += &next(d, width);
    if let Some(tried) = &d.tried {
        out += &wrapped("  tried     ", &tried.sentence, width);
        for (command, figures) in tried::lines(tried) {
            out += &format!("            {command}\n");
            for line in figures {
                out += &wrapped("              ", &line, width);
            }
        }
    }
    out
}

/// The commands to try next, each with what it does behind it, or below where the line is too long.
fn next(d: &Diagnosis, width: usize) -> String {
    const INDENT: &str = "            ";
    let longest = d.next.iter().map(|next| next.command.chars().count()).max();
    let pad = longest.unwrap_or(0).min(64);
    let mut out = String::new();
    for (index, next) in d.next.iter().enumerate() {
        let head = if index == 0 { "  next      " } else { INDENT };
        let line = format!("{head}{:<pad$}  # {}", next.command, next.what);
        if line.chars().count() <= width {
            out += &format!("{line}\n");
        } else {
            out += &format!("{head}{}\n", next.command);
            let indent = format!("{INDENT}  # ");
            let options = textwrap::Options::new(width)
                .initial_indent(&indent)
                .word_splitter(textwrap::WordSplitter::NoHyphenation)
                .subsequent_indent(&indent);
            out += &format!("{}\n", textwrap::fill(&next.what, options));
        }
    }
    out
}

/// The diagnosis as Markdown, to paste into an issue.
pub fn markdown(d: &Diagnosis) -> String {
    let f = &d.figures;
    let mut out = format!("**Is malloc the bottleneck of `{}`?**", d.program);
    if d.verdicts.is_empty() {
        out += &format!(" **{}** {}\n\n", word(d.answer), d.sentence);
    } else {
        let verdicts = d.verdicts.iter();
        let items = verdicts.map(|verdict| format!("- {}: {}\n", verdict.name(), verdict.text()));
        out += &format!("\n\n{}\n", items.collect::<String>());
    }
    out += &format!("{}\n\n| | |\n| --- | --- |\n", title(f));
    for (name, line) in lines(f) {
        out += &format!("| {name} | {} |\n", crate::html::cell(&line));
    }
    let reasons = d
        .troubles
        .iter()
        .map(|t| ("because", t))
        .chain(d.takes.iter().map(|t| ("instead", t)));
    for (label, trouble) in reasons {
        out += &format!(
            "| {label} | {} |\n",
            crate::html::cell(&format!("{} ({})", trouble.what, trouble.because))
        );
    }
    out.push('\n');
    if !d.next.is_empty() {
        out += "```sh\n";
        for next in &d.next {
            out += &format!("{}  # {}\n", next.command, next.what);
        }
        out += "```\n";
    }
    if let Some(tried) = &d.tried {
        out += &format!("\n{}\n\n", tried.sentence);
        for (command, figures) in tried::lines(tried) {
            out += &format!("- `{command}`: {}\n", figures.join("; "));
        }
    }
    out
}

pub(in crate::outcomes) fn wrapped(head: &str, text: &str, width: usize) -> String {
    let indent = " ".repeat(head.chars().count());
    let options = textwrap::Options::new(width)
        .initial_indent(head)
        .subsequent_indent(&indent)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(text, options) + "\n"
}

/// The line about the run.
pub fn title(f: &Figures) -> String {
    let cost = match f.probe_cost {
        Some(cost) => format!(" · the probe cost {}", percent(cost)),
        None => String::new(),
    };
    let threads = format!(
        "{} {}",
        f.threads.max(1),
        noun_for(f.threads.max(1), "thread")
    );
    let subject = match (&f.heaviest, f.processes) {
        (Some(one), _) => format!("{} (process {}, {threads})", one.program, one.pid),
        (None, 0 | 1) => threads,
        (None, n) => format!("{n} processes, {threads}"),
    };
    let linkage = match f.linkage.as_str() {
        "" => String::new(),
        linkage => format!(" ({linkage})"),
    };
    format!(
        "where the time of {subject} goes · allocator: {}{linkage} · {} · {} samples in {} {}{cost}",
        f.allocator,
        units::seconds(f.wall_seconds),
        f.samples,
        f.runs,
        noun_for(u64::from(f.runs), "run"),
    )
}

/// The noun behind a count: `run` or `runs`.
fn noun_for(count: u64, noun: &str) -> String {
    if count == 1 {
        noun.to_owned()
    } else {
        format!("{noun}s")
    }
}

/// The shares of busy time: the program, inside running, inside waiting, page faults of the heap.
pub fn shares(f: &Figures) -> [(&'static str, f64); 4] {
    let waiting = f.waiting.unwrap_or(0.0);
    let inside = f.inside.unwrap_or(0.0) * (1.0 - waiting);
    let faults = (fault_share(f) * (1.0 - waiting)).min((1.0 - waiting - inside).max(0.0));
    let program = (1.0 - inside - waiting - faults).max(0.0);
    [
        ("program", program),
        ("in malloc, running", inside),
        ("in malloc, waiting", waiting),
        ("page faults of the heap", faults),
    ]
}

fn bar(f: &Figures) -> String {
    let signs = ['█', '▓', '▒', '░'];
    let shares = shares(f);
    let mut drawn = String::new();
    let (mut sum, mut cells) = (0.0, 0);
    for ((_, share), sign) in shares.iter().zip(signs) {
        sum += share;
        let until = (sum * BAR_COLUMNS as f64).round() as usize;
        drawn.extend(std::iter::repeat_n(sign, until.saturating_sub(cells)));
        cells = until.max(cells);
    }
    let texts: Vec<String> = shares
        .iter()
        .zip(signs)
        .filter(|((_, share), _)| *share >= 0.0005)
        .map(|((name, share), sign)| format!("{sign} {name} {}", percent(*share)))
        .collect();
    format!("{drawn}   {}", texts.join("  "))
}

/// The lines of figures: a heading and the text.
pub fn lines(f: &Figures) -> Vec<(&'static str, String)> {
    let lines = [
        ("calls", calls(&f.calls)),
        ("waits", waits(f)),
        ("threads", threads(f)),
        ("kernel", Some(kernel(f))),
        ("memory", Some(memory(f))),
    ];
    lines
        .into_iter()
        .filter_map(|(heading, text)| Some((heading, text?)))
        .collect()
}

fn calls(calls: &Calls) -> Option<String> {
    if calls.mallocs == 0 {
        return None;
    }
    let mut text = format!(
        "{} malloc, {} free",
        units::rate(calls.mallocs_per_second),
        units::rate(calls.frees_per_second)
    );
    let mut more = Vec::new();
    if let Some(share) = calls.freed_elsewhere {
        more.push(match share {
            share if share < 0.005 => "freed where they were allocated".to_owned(),
            share => format!("{} freed by another thread", percent(share)),
        });
    }
    if let Some(share) = calls.short_lived {
        more.push(format!("{} live < 1 ms", percent(share)));
    }
    if let Some(size) = calls.median_size {
        more.push(format!("median ≤ {}", units::bytes(size as f64)));
    }
    if let Some(share) = calls.large {
        more.push(format!("{} above 64 KiB", percent(share)));
    }
    if !more.is_empty() {
        text += &format!(" · {}", more.join("; "));
    }
    Some(text)
}

fn waits(f: &Figures) -> Option<String> {
    let mut text = format!(
        "{} of busy threads’ time inside malloc",
        percent(f.waiting?)
    );
    let kinds = named(&f.waits);
    if !kinds.is_empty() {
        text += &format!(": {kinds}");
    }
    let long: u64 = f.long_calls.iter().map(|(_, count)| count).sum();
    if long > 0 {
        let by: Vec<String> = f
            .long_calls
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        text += &format!(
            " · longest call {}, {long} {} > 1 ms: {}",
            units::seconds(f.longest_call_seconds),
            noun_for(long, "call"),
            by.join(", ")
        );
    }
    let outside = named(&f.waits_outside);
    if !outside.is_empty() {
        text += &format!(" · outside: {outside} of all thread time");
    }
    Some(text)
}

/// The threads that wait most.
fn threads(f: &Figures) -> Option<String> {
    if f.waiting_threads.is_empty() {
        return None;
    }
    let each = f.waiting_threads.iter().map(|thread| {
        let kind = if thread.kind.is_empty() {
            String::new()
        } else {
            format!(" for {}", waited_for(&thread.kind))
        };
        let idle = if thread.is_idle { " (idle)" } else { "" };
        let name = format!("{} {}", thread.name, thread.id);
        format!("{name} waits {}{kind}{idle}", percent(thread.share))
    });
    Some(format!(
        "those that wait most: {}",
        each.collect::<Vec<_>>().join("; ")
    ))
}

/// What a thread waits for, in a sentence.
fn waited_for(kind: &str) -> &str {
    match kind {
        "lock" => "locks",
        "futex" => "locks or other threads",
        "file or socket" => "files or sockets",
        "sleep" => "a time to come",
        kind => kind,
    }
}

fn kernel(f: &Figures) -> String {
    let mut kernel = Vec::new();
    let by_allocator: Vec<String> = f
        .syscalls
        .iter()
        .filter(|(_, inside, _)| *inside >= 0.5)
        .map(|(name, inside, _)| format!("{name} {}", units::rate(*inside)))
        .collect();
    if !by_allocator.is_empty() {
        kernel.push(format!("{} by the allocator", by_allocator.join(", ")));
    }
    kernel.push(format!("{} page faults", units::grouped(f.faults as f64)));
    let kinds = named(&f.fault_kinds);
    if !kinds.is_empty() {
        let last = kernel.last_mut().expect("pushed above");
        *last += &format!(" ({kinds})");
    }
    if let Some(share) = f.refaults {
        kernel.push(format!(
            "{} of them on pages that had been there before",
            percent(share)
        ));
    }
    kernel.join("; ")
}

fn memory(f: &Figures) -> String {
    let mib = |bytes: f64| units::bytes(bytes);
    let mut text = format!("peak RSS {}", mib(f.peak_rss as f64));
    if let Some(live) = f.live_at_peak {
        text += &format!(", live then {}", mib(live.max(0) as f64));
    }
    if let Some(live) = f.peak_live {
        text += &format!(" · peak of live bytes {}", mib(live.max(0) as f64));
    }
    if let Some(end) = &f.end {
        text += &format!(" · at the end RSS {}", mib(end.rss as f64));
        if end.lazy > 0 {
            text += &format!(" (−{} LazyFree)", mib(end.lazy as f64));
        }
        text += &format!(", live {}", mib(end.live.max(0) as f64));
        if let Some(returned) = end.returned {
            text += &format!(": {} went back when asked to", mib(returned as f64));
        }
    }
    if let Some(heap) = &f.heap {
        let when = match heap.age_seconds {
            age if age < 2.0 => "now".to_owned(),
            age => format!("as published {age:.0} s ago"),
        };
        text += &format!(
            " · the heap {when}: {} live on {} of pages, {} in caches, {} of free pages, {} of records",
            mib(heap.allocated as f64),
            mib(heap.active as f64),
            mib(heap.cached as f64),
            mib(heap.free as f64),
            mib(heap.metadata as f64)
        );
    }
    text
}

fn named(shares: &[(String, f64)]) -> String {
    let texts: Vec<String> = shares
        .iter()
        .filter(|(_, share)| *share >= 0.005)
        .map(|(name, share)| format!("{name} {}", percent(*share)))
        .collect();
    texts.join(", ")
}
