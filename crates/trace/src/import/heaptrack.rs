//! heaptrack's interpreted text. `a SIZE TRACE` tells a kind of allocation, `+ KIND` one of it,
//! `- KIND` the end of one, `c MS` the time. All numbers are hexadecimal. Which block of a kind
//! ends, the file does not tell: the youngest is taken.

use std::io::{BufRead, Write};

use super::{SPACING_BYTES, Sink, lines, wrong};
use crate::Result;
use crate::event::Kind;

/// All events are of one thread.
const THREAD: u64 = 0;
/// The most kinds of allocations that a file may declare.
const KINDS_MAX: usize = 1 << 26;

pub fn read<W: Write>(from: impl BufRead, sink: &mut Sink<W>) -> Result<()> {
    let mut sizes: Vec<u64> = Vec::new();
    let mut live: Vec<Vec<u64>> = Vec::new();
    let (mut free, mut next) = (Vec::new(), SPACING_BYTES);
    let mut found = false;
    lines(from, |at, line| {
        let mut words = line.split_whitespace();
        let what = words.next().unwrap_or("");
        if !matches!(what, "a" | "+" | "-" | "c") {
            return Ok(());
        }
        let first = words
            .next()
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        let first =
            first.ok_or_else(|| wrong(at, format!("expected a hexadecimal number: {line}")))?;
        match what {
            "a" => {
                if sizes.len() >= KINDS_MAX {
                    return Err(wrong(at, "too many kinds of allocations"));
                }
                sizes.push(first);
                live.push(Vec::new());
                return Ok(());
            }
            "c" => {
                sink.at(first.saturating_mul(1_000_000));
                return Ok(());
            }
            _ => {}
        }
        let kind = usize::try_from(first)
            .ok()
            .filter(|kind| *kind < sizes.len());
        let kind = kind.ok_or_else(|| wrong(at, "a block of an undeclared kind"))?;
        found = true;
        if what == "+" {
            let address = free.pop().unwrap_or_else(|| {
                next += SPACING_BYTES;
                next - SPACING_BYTES
            });
            live[kind].push(address);
            return sink.push(THREAD, Kind::Malloc, address, sizes[kind]);
        }
        let address = live[kind].pop();
        let address =
            address.ok_or_else(|| wrong(at, "more blocks of a kind freed than allocated"))?;
        free.push(address);
        sink.push(THREAD, Kind::Free, address, 0)
    })?;
    if !found {
        return Err(wrong(
            1,
            "no allocation in the file: raw files need `heaptrack_interpret` first",
        ));
    }
    Ok(())
}
