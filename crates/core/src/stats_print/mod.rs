//! The report of `malloc_stats_print`: jemalloc's, as text for people or as JSON for programs, and
//! metrics for Prometheus.
//!
//! `write` emits either form into a buffer, `settings` has what does not change (the version,
//! options, size classes), `totals` the process, `arenas` one or several arenas with the `tables`
//! of their classes. `metrics` is the form for Prometheus. The figures come from a snapshot that
//! the report takes for itself, so that they stay consistent. Nothing here allocates, and no lock
//! is held while the callback gets the text: it may do what it likes.

mod arenas;
mod metrics;
mod settings;
mod tables;
mod totals;
mod write;

use crate::api;
use crate::cache::inside;
use crate::stats::{self, ALL, DESTROYED, Snapshot};
use crate::sys::page::PAGE;
use core::ffi::CStr;
use mallard_formats::metrics::Format;
use write::Emitter;

/// Which parts are printed; all, as text, by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parts {
    json: bool,
    metrics: bool,
    general: bool,
    merged: bool,
    destroyed: bool,
    each: bool,
    bins: bool,
    large: bool,
    locks: bool,
    extents: bool,
    huge: bool,
}

impl Parts {
    /// Parses jemalloc's letters: `J` for JSON, each of the others leaves a part out. Unknown
    /// letters are ignored. `P` is Mallard's: metrics, whatever the others say.
    fn of(letters: &[u8]) -> Parts {
        // Not `contains`, which is long: it searches words at once.
        let without = |letter| letters.iter().all(|&given| given != letter);
        Parts {
            json: !without(b'J'),
            metrics: !without(b'P'),
            general: without(b'g'),
            merged: without(b'm'),
            destroyed: without(b'd'),
            each: without(b'a'),
            bins: without(b'b'),
            large: without(b'l'),
            locks: without(b'x'),
            extents: without(b'e'),
            huge: without(b'h'),
        }
    }
}

/// Takes a new snapshot and passes the report to `out`, in pieces of at most some KiB. Without
/// memory for a snapshot, prints a line that says so.
pub fn print(letters: &[u8], out: &mut dyn FnMut(&CStr)) {
    api::start();
    let parts = Parts::of(letters);
    if parts.metrics {
        return print_metrics(Format::OpenMetrics, out);
    }
    if print_report(parts, out).is_none() {
        out(NO_MEMORY);
    }
}

/// Prints the metrics of the process in one of their formats.
pub fn print_metrics(format: Format, out: &mut dyn FnMut(&CStr)) {
    api::start();
    if metrics::print(format, out).is_none() {
        out(NO_MEMORY);
    }
}

// A comment in either format of metrics.
const NO_MEMORY: &CStr = c"# mallard: no memory for a snapshot of the statistics\n";

#[inline(never)]
fn print_report(parts: Parts, out: &mut dyn FnMut(&CStr)) -> Option<()> {
    let snapshot = stats::take()?;
    report(&snapshot, parts, out);
    let _inside = inside::enter_or_wait();
    drop(snapshot);
    Some(())
}

fn report(snapshot: &Snapshot, parts: Parts, out: &mut dyn FnMut(&CStr)) {
    let mut e = Emitter::new(parts.json, out);
    e.begin();
    if parts.general {
        settings::emit(&mut e);
    }
    totals::emit(&mut e, snapshot, parts.locks);
    let exists = |i| snapshot.arena(i).filter(|a| a.exists);
    e.object("stats.arenas");
    if let Some(all) = exists(ALL)
        && parts.merged
        && (snapshot.arenas().count() > 1 || !parts.each)
    {
        e.text(format_args!("Merged arenas stats:\n"));
        arenas::emit(&mut e, "merged", all, parts);
    }
    if let Some(destroyed) = exists(DESTROYED)
        && parts.destroyed
    {
        e.text(format_args!("Destroyed arenas stats:\n"));
        arenas::emit(&mut e, "destroyed", destroyed, parts);
    }
    for arena in snapshot.arenas().filter(|_| parts.each) {
        let mut number = write::Digits::new();
        e.text(format_args!("arenas[{}]:\n", arena.index));
        arenas::emit(&mut e, number.of(arena.index), arena, parts);
    }
    e.end_object();
    e.end();
}

/// Events per second, over `ns` nanoseconds.
fn rate(n: u64, ns: u64) -> u64 {
    match ns / 1_000_000_000 {
        _ if ns == 0 => 0,
        0 => n,
        seconds => n / seconds,
    }
}

/// Bytes of `pages` pages.
fn bytes(pages: usize) -> usize {
    pages * PAGE
}

#[cfg(test)]
mod tests;
