//! ltrace: a line for each call, `malloc(24) = 0x55…`, with `[pid N]` before it if it follows
//! threads, and two lines if a call was interrupted by one of another thread.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use super::{Sink, lines, log2, number, wrong};
use crate::Result;
use crate::event::Kind;

pub fn read<W: Write>(from: impl BufRead, sink: &mut Sink<W>) -> Result<()> {
    let mut open: HashMap<u64, String> = HashMap::new();
    let mut found = 0_u64;
    lines(from, |at, line| {
        let (thread, line) = thread_of(line);
        let Some(call) = whole(thread, line, &mut open) else {
            return Ok(());
        };
        let Some((name, arguments, result)) = parts(&call) else {
            return Ok(());
        };
        let arguments: Option<Vec<u64>> = arguments.iter().map(|word| number(word)).collect();
        let result = match result {
            "nil" | "<void>" => Some(0),
            other => number(other),
        };
        let known = [
            "malloc",
            "calloc",
            "realloc",
            "free",
            "memalign",
            "aligned_alloc",
        ];
        // Calls from inside libraries read `libfoo.so->malloc(24)`.
        let name = name.rsplit("->").next().unwrap_or(name);
        if !known.contains(&name) {
            return Ok(());
        }
        let (Some(arguments), Some(result)) = (arguments, result) else {
            return Err(wrong(at, format!("cannot read the call: {line}")));
        };
        found += 1;
        match (name, &arguments[..]) {
            ("malloc", [size]) if result != 0 => sink.push(thread, Kind::Malloc, result, *size),
            ("calloc", [count, size]) if result != 0 => {
                sink.push(thread, Kind::Calloc, result, count.saturating_mul(*size))
            }
            ("memalign" | "aligned_alloc", [align, size]) if result != 0 => {
                sink.push_aligned(thread, Kind::Aligned, result, *size, log2(*align))
            }
            ("realloc", [old, size]) => {
                sink.push(thread, Kind::ReallocBegin, *old, 0)?;
                sink.push(thread, Kind::ReallocEnd, result, *size)
            }
            ("free", [0]) => Ok(()),
            ("free", [block]) => sink.push(thread, Kind::Free, *block, 0),
            ("malloc" | "calloc" | "memalign" | "aligned_alloc", [.., size]) => {
                sink.push(thread, Kind::Failed, 0, *size)
            }
            _ => Err(wrong(at, format!("the call has other arguments: {line}"))),
        }
    })?;
    if found == 0 {
        return Err(wrong(1, "no call of malloc in the file"));
    }
    Ok(())
}

/// The call that a line ends, or begins if it is a free: a free is ordered by its begin, an
/// allocation by its end. `open` has the arguments of calls that have not returned, by thread.
fn whole(thread: u64, line: &str, open: &mut HashMap<u64, String>) -> Option<String> {
    if let Some((begun, _)) = line.split_once("<unfinished") {
        open.insert(thread, begun.trim_end().to_owned());
        let is_free = begun.trim_start().starts_with("free(");
        return is_free.then(|| format!("{begun}) = <void>"));
    }
    if !line.contains(" resumed>") {
        return Some(line.to_owned());
    }
    let begun = open.remove(&thread)?;
    if begun.starts_with("free(") {
        return None;
    }
    let rest = line.split_once(" resumed>").map_or("", |(_, rest)| rest);
    Some(format!("{begun}{rest}"))
}

/// The thread before a line, and the rest.
fn thread_of(line: &str) -> (u64, &str) {
    let trimmed = line.trim_start();
    if let Some((thread, rest)) = trimmed
        .strip_prefix("[pid ")
        .and_then(|rest| rest.split_once(']'))
        && let Ok(thread) = thread.trim().parse()
    {
        return (thread, rest.trim_start());
    }
    // `ltrace -o FILE -f` writes the number alone.
    match trimmed.split_once(' ') {
        Some((thread, rest)) if thread.parse::<u64>().is_ok() => {
            (thread.parse().unwrap_or(0), rest.trim_start())
        }
        _ => (0, trimmed),
    }
}

/// The name, the arguments and the result of a call. Times between may stand before the name.
fn parts(call: &str) -> Option<(&str, Vec<&str>, &str)> {
    let (head, rest) = call.split_once('(')?;
    let name = head.split_whitespace().next_back()?;
    let (arguments, result) = rest.rsplit_once('=')?;
    let arguments = arguments.trim().strip_suffix(')')?.trim();
    let arguments = match arguments {
        "" => Vec::new(),
        all => all.split(',').map(str::trim).collect(),
    };
    let arguments = arguments
        .into_iter()
        .map(|word| if word == "nil" { "0" } else { word })
        .collect();
    Some((name, arguments, result.split_whitespace().next()?))
}
