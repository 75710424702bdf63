//! The figures of one process, as lines of text.

use mallard_inspect::snapshot::{Arena, Class, Lock};

use crate::processes::figures::{bytes, count, percent};
use crate::processes::row::Row;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Summary,
    Classes,
    Arenas,
    Locks,
    /// The code that holds the memory; `sites` has its lines.
    Sites,
}

pub const TABS: [(Tab, char, &str); 5] = [
    (Tab::Summary, 't', "totals"),
    (Tab::Classes, 'c', "classes"),
    (Tab::Arenas, 'a', "arenas"),
    (Tab::Locks, 'l', "locks"),
    (Tab::Sites, 'p', "sites"),
];

/// The lines of a tab; the first is a heading.
pub fn lines(row: &Row, tab: Tab) -> Vec<String> {
    match tab {
        Tab::Summary => summary(row),
        Tab::Classes => classes(&row.snapshot.classes),
        Tab::Arenas => arenas(&row.snapshot.arenas),
        Tab::Locks => locks(&row.snapshot.locks),
        Tab::Sites => Vec::new(),
    }
}

fn summary(row: &Row) -> Vec<String> {
    let mut lines = vec![format!("{:<16} {:>14}", "FIGURE", "NOW")];
    // Nothing is left of what the system counted for a dead process.
    let is_known = |name: &str| name != "RSS" || row.rss > 0;
    let figures = memory(row).into_iter().chain(state(row));
    let figures = figures.filter(|(name, ..)| is_known(name));
    lines.extend(figures.map(|(name, value, about)| {
        format!("{name:<16} {value:>14}  {about}")
            .trim_end()
            .to_owned()
    }));
    lines
}

/// A figure's name, its value and what it is.
type Figure = (&'static str, String, &'static str);

/// Where the memory is.
fn memory(row: &Row) -> [Figure; 12] {
    let totals = &row.snapshot.totals;
    [
        (
            "allocated",
            bytes(totals.allocated),
            "blocks that the program holds",
        ),
        ("peak", bytes(totals.peak), "largest published value"),
        (
            "active",
            bytes(totals.active),
            "pages with slabs and large blocks",
        ),
        (
            "fragmentation",
            percent(totals.fragmentation()),
            "of them hold no block",
        ),
        (
            "thread caches",
            bytes(totals.thread_cached),
            "free blocks, for the next requests",
        ),
        (
            "transfer caches",
            bytes(totals.transfer_cached),
            "free blocks, between threads",
        ),
        (
            "dirty",
            bytes(totals.dirty),
            "free pages that wait for their return",
        ),
        (
            "muzzy",
            bytes(totals.muzzy),
            "free pages that the system may take",
        ),
        (
            "metadata",
            bytes(totals.metadata),
            "the allocator's own records",
        ),
        (
            "resident",
            bytes(totals.resident),
            "an upper bound of the sum",
        ),
        (
            "RSS",
            bytes(row.rss),
            "what the system counts, with everything else",
        ),
        (
            "retained",
            bytes(totals.retained),
            "addresses without memory",
        ),
    ]
}

/// What the allocator does, and since when.
fn state(row: &Row) -> [Figure; 11] {
    let totals = &row.snapshot.totals;
    let returned = row.rates.map_or(0.0, |rates| rates.returned);
    let decay = |ms: u64| match ms as i64 {
        ms if ms < 0 => "never".to_owned(),
        ms => format!("{ms} ms"),
    };
    let sampling = match totals.sampling() {
        Some(mean) => format!("one in {} bytes", bytes(mean)),
        None => "off".to_owned(),
    };
    let uptime = row.snapshot.uptime.as_secs();
    [
        (
            "decay",
            decay(totals.dirty_decay_ms),
            "until dirty pages are returned",
        ),
        ("returned", bytes(totals.purged), "in all"),
        ("", bytes(returned as u64), "a second"),
        ("threads", count(totals.threads as f64), "with a cache"),
        ("arenas", count(totals.arenas as f64), ""),
        ("sampling", sampling, ""),
        ("samples", count(totals.samples as f64), "live"),
        ("call stacks", count(totals.sites as f64), ""),
        ("uptime", format!("{uptime} s"), ""),
        (
            "age",
            format!("{} s", row.snapshot.age.as_secs()),
            if row.is_doubtful() {
                "of these figures; they may be out of date"
            } else {
                "of these figures"
            },
        ),
        (
            "publication",
            format!("{} µs", totals.cost_ns / 1000),
            "time that the last one took",
        ),
    ]
}

fn classes(classes: &[Class]) -> Vec<String> {
    let mut lines = vec![format!(
        "{:>7} {:>7} {:>7} {:>7} {:>6} {:>7} {:>8} {:>7} {:>7}",
        "SIZE", "BLOCKS", "ALLOC", "PAGES", "USED", "UNUSED", "CACHED", "TAKEN", "GIVEN"
    )];
    let mut classes: Vec<&Class> = classes.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.unused()));
    lines.extend(classes.into_iter().map(|class| {
        let size = match class.size {
            0 => "larger".to_owned(),
            size => bytes(size),
        };
        format!(
            "{:>7} {:>7} {:>7} {:>7} {:>6} {:>7} {:>8} {:>7} {:>7}",
            size,
            count(class.blocks as f64),
            bytes(class.allocated),
            bytes(class.pages),
            percent(class.utilization()),
            bytes(class.unused()),
            count((class.thread_cached + class.transfer_cached) as f64),
            count(class.taken as f64),
            count(class.given as f64),
        )
    }));
    lines
}

fn arenas(arenas: &[Arena]) -> Vec<String> {
    let mut lines = vec![format!(
        "{:>6} {:>8} {:>9} {:>9} {:>9} {:>6} {:>9} {:>9}",
        "ARENA", "THREADS", "BLOCKS", "TRANSFER", "PAGES", "HEAP", "DIRTY", "MUZZY"
    )];
    lines.extend(arenas.iter().map(|arena| {
        format!(
            "{:>6} {:>8} {:>9} {:>9} {:>9} {:>6} {:>9} {:>9}",
            arena.number,
            arena.threads,
            bytes(arena.taken),
            bytes(arena.transfer_cached),
            bytes(arena.pages),
            arena.heap,
            bytes(arena.dirty),
            bytes(arena.muzzy),
        )
    }));
    lines
}

fn locks(locks: &[Lock]) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<12} {:>9} {:>9} {:>12} {:>12}",
        "LOCK", "TAKEN", "WAITS", "WAITED", "LONGEST"
    )];
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    lines.extend(locks.iter().map(|lock| {
        format!(
            "{:<12} {:>9} {:>9} {:>12} {:>12}",
            lock.name,
            count(lock.taken as f64),
            count(lock.waits as f64),
            ms(lock.waited_ns),
            ms(lock.longest_ns),
        )
    }));
    lines
}
