//! The totals of the process.

use super::tables;
use super::write::Emitter;
use crate::ctl::locks::OF_PROCESS;
use crate::stats::{Snapshot, Totals};
use crate::sys::mappings;

pub fn emit(e: &mut Emitter<'_>, snapshot: &Snapshot, locks: bool) {
    let t = &snapshot.totals;
    e.object("stats");
    numbers(e, t);
    e.text(format_args!(
        "Allocated: {}, active: {}, metadata: {} (n_thp {}), resident: {}, mapped: {}, retained: {}\n",
        t.allocated, t.active, t.metadata, t.metadata_thp, t.resident, t.mapped, t.retained
    ));
    e.text(format_args!(
        "Count of realloc(non-null-ptr, 0) calls: {}\n",
        t.zero_reallocs
    ));
    e.text(format_args!(
        "Borders of mappings: {} of {}\n",
        mappings::borders(),
        mappings::limit()
    ));
    let b = &t.background;
    e.text(format_args!(
        "Background threads: {}, num_runs: {}, run_interval: {} ns\n",
        b.threads, b.runs, b.interval_ns
    ));
    if locks {
        let uptime = snapshot.merged().map_or(0, |all| all.uptime_ns);
        e.object("mutexes");
        tables::lock_titles(e);
        for (i, (name, _)) in OF_PROCESS.iter().enumerate() {
            tables::lock_row(e, name.as_str(), &t.named_lock(i), uptime);
        }
        e.end_object();
    }
    e.end_object();
}

fn numbers(e: &mut Emitter<'_>, t: &Totals) {
    for (key, n) in [
        ("allocated", t.allocated),
        ("active", t.active),
        ("metadata", t.metadata),
        ("metadata_thp", t.metadata_thp),
        ("resident", t.resident),
        ("mapped", t.mapped),
        ("retained", t.retained),
        ("zero_reallocs", t.zero_reallocs as usize),
        ("mapping_borders", mappings::borders()),
        ("mapping_borders_max", mappings::limit()),
    ] {
        e.number(key, n as u64);
    }
    e.object("background_thread");
    e.number("num_threads", t.background.threads as u64);
    e.number("num_runs", t.background.runs);
    e.number("run_interval", t.background.interval_ns);
    e.end_object();
}
