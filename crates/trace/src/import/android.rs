//! Android's malloc_debug: a line for each call, `THREAD: malloc POINTER SIZE [START END]`, with
//! times in nanoseconds in newer versions.

use std::io::{BufRead, Write};

use super::{Sink, lines, log2, number, wrong};
use crate::Result;
use crate::event::Kind;

/// Whether a line is one of this format.
pub fn is_line(line: &str) -> bool {
    let Some((thread, rest)) = line.split_once(": ") else {
        return false;
    };
    let what = rest.split_whitespace().next().unwrap_or("");
    let known = [
        "malloc",
        "calloc",
        "realloc",
        "memalign",
        "free",
        "thread_done",
    ];
    thread.trim().parse::<u64>().is_ok() && known.contains(&what)
}

pub fn read<W: Write>(from: impl BufRead, sink: &mut Sink<W>) -> Result<()> {
    lines(from, |at, line| {
        if line.trim().is_empty() {
            return Ok(());
        }
        let bad = || {
            wrong(
                at,
                format!("expected `THREAD: malloc POINTER SIZE` or the like: {line}"),
            )
        };
        let (thread, rest) = line.split_once(':').ok_or_else(bad)?;
        let thread = thread.trim().parse().map_err(|_| bad())?;
        let mut words = rest.split_whitespace();
        let what = words.next().ok_or_else(bad)?;
        let numbers: Vec<u64> = words.map(number).collect::<Option<_>>().ok_or_else(bad)?;
        let count = match what {
            "malloc" => 2,
            "calloc" | "realloc" | "memalign" => 3,
            "free" | "thread_done" => 1,
            _ => return Err(wrong(at, format!("unknown call `{what}`"))),
        };
        let (arguments, times) = numbers.split_at_checked(count).ok_or_else(bad)?;
        // The end of an allocation orders it, and the start of a free.
        match (what, times) {
            ("free", [start, _]) => sink.at(*start),
            (_, [.., end]) => sink.at(*end),
            (_, []) => {}
        }
        match what {
            "malloc" => sink.push(thread, Kind::Malloc, arguments[0], arguments[1]),
            "calloc" => sink.push(
                thread,
                Kind::Calloc,
                arguments[0],
                arguments[1].saturating_mul(arguments[2]),
            ),
            "memalign" => sink.push_aligned(
                thread,
                Kind::Aligned,
                arguments[0],
                arguments[2],
                log2(arguments[1]),
            ),
            "realloc" => {
                sink.push(thread, Kind::ReallocBegin, arguments[1], 0)?;
                sink.push(thread, Kind::ReallocEnd, arguments[0], arguments[2])
            }
            "thread_done" => sink.end(thread),
            // A free of nothing is none.
            _ if arguments[0] == 0 => Ok(()),
            _ => sink.push(thread, Kind::Free, arguments[0], 0),
        }
    })
}
