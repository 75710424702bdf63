//! From what the runs have shown to figures.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mallard_judge::diagnose::cost::{self, Cost, without_probe};
use mallard_judge::diagnose::growth::growth;
use mallard_judge::diagnose::share::interval;
use mallard_judge::diagnose::thresholds::{HELD_BYTES_MIN, HELD_FACTOR_MIN};
use mallard_report::diagnosis::{Calls, EndMemory, Figures, Growth, Heaviest, Moment};
use mallard_runner::{End, Measurement};
use mallard_watch::clock::cpu_time;
use mallard_watch::findings::{Findings, Image, Looks};
use mallard_watch::layout::MATRIX_THREADS;
use mallard_watch::segments::Counts;
use mallard_watch::syscalls::{self, Syscalls};

use super::options::Way;
use super::runs::{Runs, TIMER_HZ};
use super::waits;

/// The least number of signals that is enough: looks have a bias where the program has no CPU for
/// itself, and signals have none.
const SIGNALS_MIN: f64 = 50.0;
/// Of the signals that the CPU time is worth, the least share that stands for all of it.
const SIGNALS_SHARE_MIN: f64 = 0.5;
/// What each process touches before it does anything.
const START_PAGES: u64 = 300;

/// Bytes of the system's page.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A run with the probe, of all processes or of the heaviest.
struct Observed<'a> {
    wall: f64,
    user: f64,
    system: f64,
    faults: u64,
    peak_rss: u64,
    found: Cow<'a, Findings>,
}

impl<'a> Observed<'a> {
    fn whole(measured: &Measurement, found: &'a Findings) -> Observed<'a> {
        // The kernel knows the peak of each process, and not of all.
        let together = found.memory.iter().map(|memory| memory.rss).max();
        Observed {
            wall: measured.wall.as_secs_f64(),
            user: measured.user.as_secs_f64(),
            system: measured.system.as_secs_f64(),
            faults: measured.minor_faults + measured.major_faults,
            peak_rss: measured.peak_rss_bytes.max(together.unwrap_or(0)),
            found: Cow::Borrowed(found),
        }
    }

    /// The process that computes most, by the last reading of it.
    fn one(pid: u32, found: &Findings) -> Option<Observed<'a>> {
        let process = found.processes.get(&pid)?;
        let peak = process.memory.iter().map(|memory| memory.rss).max();
        Some(Observed {
            wall: process.last_seconds - process.first_seconds,
            user: process.user.as_secs_f64(),
            system: process.system.as_secs_f64(),
            faults: process.faults,
            peak_rss: peak.unwrap_or(0),
            found: Cow::Owned(found.of(pid)),
        })
    }
}

/// A process that takes this share of the CPU time is judged for itself.
const HEAVIEST_SHARE_MIN: f64 = 0.5;
/// One that lived shorter was not read often enough.
const HEAVIEST_SECONDS_MIN: f64 = 0.2;

/// The runs, and the process that is judged, if it is one of several.
fn observed(runs: &Runs) -> (Vec<Observed<'_>>, Option<Heaviest>) {
    let of_one = |measured: &Measurement, found: &Findings| {
        let (pid, share) = found.heaviest(measured.user + measured.system)?;
        let one = Observed::one(pid, found)?;
        (share >= HEAVIEST_SHARE_MIN && one.wall >= HEAVIEST_SECONDS_MIN)
            .then_some((pid, share, one))
    };
    let (measured, last) = runs.observed.last().expect("there is a run");
    let heaviest =
        of_one(measured, last).map(|(pid, share, one)| heaviest(last, pid, share, &one.found));
    let all = runs.observed.iter();
    let all = all.map(|(measured, found)| match of_one(measured, found) {
        Some((_, _, one)) if heaviest.is_some() => one,
        _ => Observed::whole(measured, found),
    });
    (all.collect(), heaviest)
}

fn heaviest(all: &Findings, pid: u32, share: f64, one: &Findings) -> Heaviest {
    let name = |program: &str| {
        let name = Path::new(program).file_name();
        name.map_or(program.to_owned(), |name| {
            name.to_string_lossy().into_owned()
        })
    };
    let program = one
        .main()
        .map_or(String::new(), |image| name(&image.program));
    let parent = |pid: &u32| {
        let parent = all.processes.get(pid)?.parent;
        all.processes.contains_key(&parent).then_some(parent)
    };
    // A number that is used again could lead in a circle.
    let ancestors = std::iter::successors(Some(pid), parent).take(all.processes.len());
    let ancestor = ancestors.last();
    let first = all.images.iter().find(|image| Some(image.pid) == ancestor);
    let started_by = first.map(|image| name(&image.program));
    Heaviest {
        pid,
        share,
        processes: process_count(all),
        started_by: started_by.filter(|name| *name != program),
        program,
    }
}

fn process_count(found: &Findings) -> u64 {
    let pids = found.images.iter().map(|image| image.pid);
    pids.collect::<BTreeSet<_>>().len() as u64
}

/// The figures of all runs, and which way gave the share of CPU time.
pub fn figures(runs: &Runs, asked: Option<Way>) -> (Figures, Way) {
    let (observed, heaviest) = observed(runs);
    let count = observed.len() as u64;
    let mut counts = Counts::default();
    for run in &observed {
        add(&mut counts, &run.found.total());
    }
    let (measured, _) = runs.observed.last().expect("there is a run");
    let last = observed.last().expect("there is a run");
    let sum = |of: fn(&Observed<'_>) -> f64| observed.iter().map(of).sum::<f64>();
    let (wall, user, system) = (
        sum(|run| run.wall),
        sum(|run| run.user),
        sum(|run| run.system),
    );
    let mean = |sum: f64| sum / count as f64;
    let longest = observed.iter().flat_map(|run| run.found.looks());
    let longest = longest.map(|looks| looks.longest_call).max();
    let mut f = Figures {
        runs: count as u32,
        processes: process_count(&last.found),
        threads: observed.iter().map(|run| run.found.threads()).sum::<u64>() / count,
        wall_seconds: mean(wall),
        user_seconds: mean(user),
        system_seconds: mean(system),
        exit: ended(measured.end),
        faults: last.faults,
        page_bytes: page_bytes(),
        peak_rss: observed.iter().map(|run| run.peak_rss).max().unwrap_or(0),
        longest_call_seconds: longest.unwrap_or_default().as_secs_f64(),
        heaviest,
        ..Figures::default()
    };
    // A server answers as much as it can: then a request's part counts.
    let slower = match (runs.plain_rate, runs.observed_rate) {
        (Some(plain), Some(observed)) if observed > 0.0 => plain / observed,
        _ => 1.0,
    };
    let cost = Cost::of(
        runs.observed.iter().map(|(run, _)| run.cpu_seconds()),
        runs.plain.iter().map(Measurement::cpu_seconds),
        slower,
    );
    f.probe_cost = cost.map(|cost| cost.share());
    let way = share(&mut f, &observed, &counts, (user + system, cost), asked);
    let looks: Vec<&Looks> = observed.iter().flat_map(|run| run.found.looks()).collect();
    let busy = (user + system) / wall.max(1e-6);
    let of_last = last.found.looks().flat_map(|looks| &looks.threads);
    waits::figures(&mut f, &looks, busy);
    waits::by_thread(&mut f, of_last);
    f.calls = calls(&counts, last.found.main(), wall, count);
    let peaks: BTreeMap<u32, u64> = (last.found.images.iter())
        .map(|image| (image.pid, image.peak_rss))
        .collect();
    let peaks: Vec<u64> = peaks.into_values().collect();
    let memory_of = PageFaults {
        count: last.faults,
        peak_rss: last.peak_rss,
        peaks: &peaks,
        images: last.found.images.len(),
        cpu: (last.user, last.system),
    };
    memory_of.figures(&mut f);
    runs.faults.fault_kinds(&mut f);
    memory(&mut f, &last.found);
    if let Ok(counted) = &runs.syscalls {
        // They were counted of all processes.
        let walls = runs.observed.iter().map(|(run, _)| run.wall.as_secs_f64());
        syscall_rates(&mut f, counted, mean(walls.sum()));
    }
    (f, way)
}

fn syscall_rates(f: &mut Figures, counted: &Syscalls, usual_seconds: f64) {
    let seconds = if counted.cut {
        counted.seconds
    } else {
        usual_seconds
    };
    let per_second = |count: Option<&u64>| count.map_or(0.0, |c| *c as f64 / seconds.max(1e-3));
    for (_, name, _) in syscalls::KINDS {
        let inside = per_second(counted.inside.get(name));
        let outside = per_second(counted.outside.get(name));
        f.syscalls.push((name.to_owned(), inside, outside));
    }
}

fn add(sum: &mut Counts, more: &Counts) {
    sum.sizes.resize(more.sizes.len().max(sum.sizes.len()), 0);
    sum.lifetimes
        .resize(more.lifetimes.len().max(sum.lifetimes.len()), 0);
    let pairs = |sums: &mut [u64], more: &[u64]| {
        sums.iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum += more);
    };
    pairs(&mut sum.calls, &more.calls);
    pairs(&mut sum.sizes, &more.sizes);
    pairs(&mut sum.lifetimes, &more.lifetimes);
    for (row, more) in sum.matrix.iter_mut().zip(&more.matrix) {
        pairs(row, more);
    }
    sum.requested += more.requested;
    sum.ticks_inside += more.ticks_inside;
    sum.ticks_outside += more.ticks_outside;
    sum.threads += more.threads;
    sum.freed_here += more.freed_here;
    sum.freed_elsewhere += more.freed_elsewhere;
}

pub fn ended(end: End) -> String {
    match end {
        End::Code(code) => code.to_string(),
        End::Signal(number) => {
            mallard_report::units::exit(mallard_report::model::Exit::Signal(number))
        }
        End::TimedOut => "ended by the lab".to_owned(),
        End::Stopped => "interrupted".to_owned(),
    }
}

/// The share of CPU time inside the allocator.
fn share(
    f: &mut Figures,
    runs: &[Observed<'_>],
    counts: &Counts,
    (cpu, cost): (f64, Option<Cost>),
    asked: Option<Way>,
) -> Way {
    let ticks = (counts.ticks_inside, counts.ticks_outside);
    let looks_of = Findings::computing;
    let looks = runs.iter().fold((0, 0), |sum, run| {
        let (inside, outside) = looks_of(&run.found);
        (sum.0 + inside, sum.1 + outside)
    });
    let expected = cpu * f64::from(TIMER_HZ);
    let way = match asked {
        Some(way) => way,
        // The program has the signal itself, or computes too little for it.
        None if ((ticks.0 + ticks.1) as f64) < (expected * SIGNALS_SHARE_MIN).max(SIGNALS_MIN)
            && looks.0 + looks.1 > ticks.0 + ticks.1 =>
        {
            Way::Proc
        }
        None => Way::Signals,
    };
    let (inside, outside) = match way {
        // Threads that never allocate have no timer, but use CPU time.
        Way::Signals => {
            let unseen = expected - (ticks.0 + ticks.1) as f64;
            let unseen = if unseen > expected * 0.25 {
                unseen as u64
            } else {
                0
            };
            (ticks.0, ticks.1 + unseen)
        }
        Way::Proc | Way::Perf | Way::Ptrace => looks,
    };
    f.samples = inside + outside;
    if f.samples == 0 {
        return way;
    }
    let calls: u64 = counts.calls.iter().sum();
    let [least, likely, most] = cost::added(cost, calls as f64 / cpu.max(1e-9));
    let by_run = runs.iter().map(|run| match way {
        Way::Signals => {
            let counts = run.found.total();
            (counts.ticks_inside, counts.ticks_outside)
        }
        Way::Proc | Way::Perf | Way::Ptrace => looks_of(&run.found),
    });
    let by_run: Vec<_> = by_run.collect();
    let (low, high) = interval((inside, outside), looks, &by_run);
    // Only a small share shrinks with what the probe has added.
    let bound = |share: f64, of: fn(f64, f64) -> f64| {
        of(without_probe(share, least), without_probe(share, most))
    };
    f.inside = Some(without_probe(inside as f64 / f.samples as f64, likely));
    f.inside_low = Some(bound(low, f64::min));
    f.inside_high = Some(bound(high, f64::max));
    way
}

fn calls(counts: &Counts, main: Option<&Image>, wall: f64, runs: u64) -> Calls {
    let [malloc, calloc, realloc, aligned, free, sized, ..] = counts.calls;
    let (mallocs, frees) = (malloc + calloc + aligned, free + sized);
    let followed = counts.freed_here + counts.freed_elsewhere;
    let requests: u64 = counts.sizes.iter().sum();
    let above = |bits: usize| counts.sizes.iter().skip(bits).sum::<u64>();
    let share = |part: u64, of: u64, least: u64| (of >= least).then(|| part as f64 / of as f64);
    let mut seen = 0;
    let median = counts.sizes.iter().position(|count| {
        seen += count;
        seen * 2 >= requests.max(1)
    });
    let rate = main.map_or(1e9, |image| image.ticks_per_second);
    let lifetimes: Vec<(f64, u64)> = counts
        .lifetimes
        .iter()
        .enumerate()
        .map(|(bits, count)| ((1_u64 << bits) as f64 / rate, *count))
        .collect();
    let ended: u64 = counts.lifetimes.iter().sum();
    let short = lifetimes.iter().filter(|(end, _)| *end <= 1.2e-3);
    let short: u64 = short.map(|(_, count)| count).sum();
    Calls {
        mallocs: mallocs / runs,
        frees: frees / runs,
        reallocs: realloc / runs,
        mallocs_per_second: mallocs as f64 / wall.max(1e-6),
        frees_per_second: frees as f64 / wall.max(1e-6),
        freed_elsewhere: share(counts.freed_elsewhere, followed, 50),
        short_lived: share(short, ended, 50),
        median_size: median.filter(|_| requests > 0).map(|bits| 1 << bits),
        large: share(above(17), requests, 1),
        middle_bytes: middle_bytes(&counts.sizes),
        sizes: counts.sizes.clone(),
        lifetimes,
        matrix: used_part(&counts.matrix),
    }
}

/// The share of bytes that are in requests of middle size. `sizes` are the numbers of requests by
/// the number of bits of their size.
fn middle_bytes(sizes: &[u64]) -> Option<f64> {
    // A class of N bits holds sizes of three quarters of its end on average.
    let bytes = |bits: usize| {
        let count = sizes.get(bits);
        count.map_or(0.0, |n| *n as f64 * (1_u64 << bits) as f64 * 0.75)
    };
    let all: f64 = (0..sizes.len()).map(bytes).sum();
    let middle: f64 = (16..=18).map(bytes).sum();
    (all > 0.0).then(|| middle / all)
}

/// The matrix of frees without the threads behind the last one that has any.
fn used_part(matrix: &[[u64; MATRIX_THREADS]]) -> Vec<Vec<u64>> {
    let row = matrix.iter().rposition(|row| row.iter().any(|n| *n > 0));
    let column = (0..matrix.len()).rfind(|c| matrix.iter().any(|row| row[*c] > 0));
    let Some(last) = row.max(column) else {
        return Vec::new();
    };
    let rows = matrix[..=last].iter();
    rows.map(|row| row[..=last].to_vec()).collect()
}

/// The page faults of a run.
pub struct PageFaults<'a> {
    pub count: u64,
    pub peak_rss: u64,
    /// The peak RSS of each process that was seen, and how many images these had.
    pub peaks: &'a [u64],
    pub images: usize,
    /// User and system time in seconds.
    pub cpu: (f64, f64),
}

impl PageFaults<'_> {
    /// How many are not the first of their page, which is those beyond what was resident at the
    /// peak, and what they take.
    pub fn figures(&self, f: &mut Figures) {
        let start = START_PAGES * self.images.max(1) as u64;
        let peaks = self.peaks.iter().sum::<u64>() / page_bytes();
        let first = peaks.max(self.peak_rss / page_bytes()) + start;
        let again = self.count.saturating_sub(first);
        // A tree of short processes has many first faults that no look has seen.
        let is_known = self.peaks.len() <= 2 && self.count > 0;
        f.refaults = is_known.then(|| again as f64 / self.count as f64);
        let again = if is_known { again } else { 0 };
        let beyond_start = self.count.saturating_sub(start);
        (f.fault_share, f.refault_share) = fault_shares(self.cpu, beyond_start, again);
    }
}

/// The shares of CPU time, of these seconds in user and system mode, that so many page faults take
/// and so many of them: no more than the kernel's.
pub fn fault_shares((user, system): (f64, f64), all: u64, again: u64) -> (f64, f64) {
    let cpu = (user + system).max(1e-6);
    let price = fault_seconds();
    let share = |count: u64| (count as f64 * price / cpu).min(system / cpu);
    (share(all), share(again))
}

/// What a page fault takes on this machine, in CPU time: others may run meanwhile.
fn fault_seconds() -> f64 {
    const TOUCHED_PAGES: usize = 4096;
    let page_bytes = rustix::param::page_size();
    let length = TOUCHED_PAGES * page_bytes;
    // SAFETY: a mapping of our own, touched within its length and released.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let memory = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        if memory == libc::MAP_FAILED {
            return 5e-7;
        }
        libc::madvise(memory, length, libc::MADV_NOHUGEPAGE);
        let begun = cpu_time();
        for page in 0..TOUCHED_PAGES {
            memory.cast::<u8>().add(page * page_bytes).write_volatile(1);
        }
        let took = (cpu_time() - begun).as_secs_f64() / TOUCHED_PAGES as f64;
        libc::munmap(memory, length);
        took
    }
}

/// The most live bytes while RSS was within a hundredth of its peak, of pairs of RSS and live
/// bytes: memory that is kept stays at the peak when its blocks are gone.
pub fn live_at_peak(moments: impl Iterator<Item = (u64, i64)> + Clone) -> Option<i64> {
    let peak = moments.clone().map(|(rss, _)| rss).max()?;
    let near = moments.filter(|(rss, _)| *rss > 0 && *rss >= peak - peak / 100);
    near.map(|(_, live)| live).max()
}

fn memory(f: &mut Figures, found: &Findings) {
    f.live_at_peak = live_at_peak(found.memory.iter().map(|memory| (memory.rss, memory.live)));
    // A heap may have lived between two looks, or before the first.
    let looks = found.memory.iter().map(|memory| memory.live);
    let counted = found.images.iter().map(|image| image.peak_live);
    f.peak_live = looks.chain(counted).max();
    f.grows = growth_of(found);
    let late = &found.memory[found.memory.len() * 3 / 4..];
    let held = |memory: &&mallard_watch::findings::Memory| {
        let (rss, live) = (
            memory.rss.saturating_sub(memory.lazy.unwrap_or(0)),
            memory.live.max(0),
        );
        rss as f64 >= live as f64 * HELD_FACTOR_MIN
            && rss.saturating_sub(live as u64) >= HELD_BYTES_MIN
    };
    let shown: Vec<_> = late.iter().filter(|memory| memory.rss > 0).collect();
    f.held_late = (shown.len() >= 3)
        .then(|| shown.iter().copied().filter(held).count() as f64 / shown.len() as f64);
    f.end = found
        .largest()
        .and_then(|image| image.end)
        .map(|end| EndMemory {
            rss: end.rss,
            lazy: end.lazy,
            anonymous: end.anonymous,
            live: end.live,
            returned: end.after.map(|(_, lazy, anonymous)| {
                let before = end.anonymous.saturating_sub(end.lazy);
                before.saturating_sub(anonymous.saturating_sub(lazy))
            }),
        });
    if let Some(end) = &f.end {
        f.peak_live = f.peak_live.max(Some(end.live));
    }
}

/// The growth of a run. The first tenth is the start of the program.
fn growth_of(found: &Findings) -> Option<Growth> {
    let memory = &found.memory[found.memory.len() / 10..];
    let moments = memory.iter().filter(|m| m.rss > 0);
    growth(
        &moments
            .map(|m| (m.seconds, m.live as f64))
            .collect::<Vec<_>>(),
    )
}

/// The times of the last run.
pub fn timeline(found: &Findings) -> Vec<Moment> {
    let mut before = (0.0, 0);
    let moment = |memory: &mallard_watch::findings::Memory| {
        let seconds = (memory.seconds - before.0).max(1e-3);
        let rate = memory.calls.saturating_sub(before.1) as f64 / seconds;
        before = (memory.seconds, memory.calls);
        Moment {
            seconds: memory.seconds,
            live: memory.live,
            rss: memory.rss,
            lazy: memory.lazy,
            calls_per_second: rate,
        }
    };
    found
        .memory
        .iter()
        .filter(|memory| memory.rss > 0)
        .map(moment)
        .collect()
}
