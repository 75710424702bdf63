//! Figures of what threads wait for.

use std::collections::BTreeMap;

use mallard_report::diagnosis::{BusyThread, Figures, WaitingThread};
use mallard_watch::findings::Looks;
use mallard_watch::threads::Wait;
use mallard_watch::waits::{Thread, Waits};

/// CPUs below which a program hardly computes.
const COMPUTING_CPUS_MIN: f64 = 0.2;
/// Fewer looks at busy threads say nothing.
const LOOKS_MIN: u64 = 20;
/// The threads that a report shows.
const THREADS_SHOWN: usize = 3;

/// The waits of all looks at processes of a program that uses so many CPUs.
pub fn figures(f: &mut Figures, looks: &[&Looks], cpus: f64) {
    let mut all = Waits::default();
    let mut long: BTreeMap<&str, u64> = BTreeMap::new();
    for looks in looks {
        all.add(&Waits::of(looks.threads.iter(), cpus < COMPUTING_CPUS_MIN));
        for (wait, count) in &looks.long_calls {
            *long.entry(name_inside(*wait)).or_default() += count;
        }
        if looks.long_frees > 0 {
            *long.entry("free").or_default() += looks.long_frees;
        }
    }
    let long = long
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count));
    f.long_calls = long.collect();
    shares(f, &all);
}

/// The waits of the threads of a process that is seen from outside, which uses so many CPUs.
pub fn of_threads<'a>(
    f: &mut Figures,
    threads: impl Iterator<Item = &'a Thread> + Clone,
    cpus: f64,
) {
    shares(f, &Waits::of(threads.clone(), cpus < COMPUTING_CPUS_MIN));
    by_thread(f, threads);
}

fn shares(f: &mut Figures, waits: &Waits) {
    let waiting: u64 = waits.inside.values().sum();
    let busy = waiting + waits.running;
    f.waiting = (busy >= LOOKS_MIN).then(|| waiting as f64 / busy as f64);
    f.waits = sorted(&waits.inside, busy, name_inside);
    f.waits_outside = sorted(&waits.outside, waits.looks, Wait::name);
    f.running = waits.running as f64 / waits.looks.max(1) as f64;
}

/// What an allocator waits for has no name of its own for each kind of futex.
fn name_inside(wait: Wait) -> &'static str {
    match wait {
        Wait::Lock | Wait::Thread => Wait::Futex.name(),
        wait => wait.name(),
    }
}

fn sorted(
    counts: &BTreeMap<Wait, u64>,
    of: u64,
    name: fn(Wait) -> &'static str,
) -> Vec<(String, f64)> {
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (wait, count) in counts {
        *by_name.entry(name(*wait)).or_default() += count;
    }
    let share = |(name, count): (&str, u64)| (name.to_owned(), count as f64 / of.max(1) as f64);
    let mut shares: Vec<(String, f64)> = by_name.into_iter().map(share).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// The threads that wait most, idle ones last, and the one that runs most, if there are several.
pub fn by_thread<'a>(f: &mut Figures, threads: impl Iterator<Item = &'a Thread>) {
    let all: Vec<&Thread> = threads.filter(|thread| thread.looks >= LOOKS_MIN).collect();
    if all.len() < 2 {
        return;
    }
    let running = |thread: &Thread| thread.running as f64 / thread.looks as f64;
    let busiest = all.iter().max_by(|a, b| running(a).total_cmp(&running(b)));
    f.busiest_thread = busiest.map(|thread| BusyThread {
        name: thread.name.clone(),
        id: thread.id,
        share: running(thread),
    });
    let waiting = |thread: &&Thread| {
        let (share, kind) = thread.waits();
        WaitingThread {
            name: thread.name.clone(),
            id: thread.id,
            share,
            kind: kind.map_or("", Wait::name).to_owned(),
            is_idle: thread.is_idle(),
        }
    };
    let mut waiting: Vec<WaitingThread> = all.iter().map(waiting).collect();
    waiting.sort_by(|a, b| (a.is_idle.cmp(&b.is_idle)).then(b.share.total_cmp(&a.share)));
    waiting.truncate(THREADS_SHOWN);
    f.waiting_threads = waiting;
}
