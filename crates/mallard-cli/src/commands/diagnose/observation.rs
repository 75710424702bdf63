//! A process as it is seen from outside, with nothing put into it: samples of the kernel say what
//! it computes, looks at `/proc` what it waits for and how much memory it has.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mallard_inspect::snapshot::Snapshot;
use mallard_inspect::source::Reader;
use mallard_judge::diagnose::growth::growth;
use mallard_judge::diagnose::share::wilson;
use mallard_judge::diagnose::thresholds::FRESH_SECONDS_MAX;
use mallard_procfs::memory::resident;
use mallard_procfs::{Stat, is_alive, mapping, stat};
use mallard_report::diagnosis::{Figures, Heap, Moment};
use mallard_watch::findings::PARKED_SHARE;
use mallard_watch::perf::{Code, Refused, Samples};
use mallard_watch::stops;
use mallard_watch::threads::{self, Doing, Wait};

use super::kernel::{Kernel, Report};

const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// Threads in one look; of more, the next look takes the next ones.
const LOOK_THREADS_MAX: usize = 64;
/// A thread counts as parked only after this many readings.
const PARKED_LOOKS_MIN: u64 = 20;
/// CPUs below which a program hardly computes.
const COMPUTING_CPUS_MIN: f64 = 0.2;

/// What was seen of a process and, by the samples, of its children.
#[derive(Debug, Default)]
pub struct Seen {
    /// Samples of threads that computed inside the allocator, elsewhere, and in code that could not
    /// be read.
    pub inside: u64,
    pub outside: u64,
    pub unknown: u64,
    /// Samples that the kernel dropped.
    pub lost: u64,
    /// Why there are no samples, or what they lack.
    pub refused: Option<String>,
    pub without_kernel: bool,
    /// How often threads were stopped instead, if they were.
    pub stops: Option<u64>,
    /// Whether some function of the process is an allocator's by its name.
    pub has_allocator: bool,
    pub timeline: Vec<Moment>,
    /// Files that the process had mapped.
    pub mapped: Vec<String>,
    pub seconds: f64,
    /// User and system time, and page faults, while it was watched.
    pub cpu: (f64, f64),
    pub faults: u64,
    /// What the kernel reported of page faults and system calls.
    pub kernel: Report,
    /// What the process itself says of its heap, if it runs on Mallard.
    pub heap: Option<Snapshot>,
    /// The process that started it, whose samples are not its own.
    started_by: u32,
    looks: u64,
    running: u64,
    waiting_inside: BTreeMap<Wait, u64>,
    waiting_outside: BTreeMap<Wait, u64>,
    /// Looks at threads that waited for one thing all the time; they are in none of the above.
    parked: BTreeMap<Wait, u64>,
    pub threads: u64,
    each: BTreeMap<u32, Thread>,
}

/// What one thread was seen to do.
#[derive(Debug, Default)]
struct Thread {
    looks: u64,
    running: u64,
    /// What it waited for, and whether inside the allocator.
    waiting: BTreeMap<(Wait, bool), u64>,
}

impl Thread {
    /// What it waits for, if that is all that it does: work to come, such as the threads of a pool
    /// and the allocator's own background thread.
    fn parked_in(&self) -> Option<Wait> {
        let mut most = self.waiting.iter().max_by_key(|(_, count)| **count);
        most.take_if(|(_, count)| {
            self.looks >= PARKED_LOOKS_MIN && **count as f64 >= self.looks as f64 * PARKED_SHARE
        })
        .map(|((wait, _), _)| *wait)
    }
}

/// What a process is watched by.
pub struct Eyes {
    pub samples: Result<Samples, Refused>,
    /// Whether to stop its threads instead.
    pub stops: bool,
    pub kernel: Kernel,
    /// Its page of statistics, if it runs on Mallard.
    pub page: Option<Reader>,
}

/// Watches a process until it ends, or `enough` says so.
pub fn watch(process: u32, eyes: Eyes, enough: impl Fn() -> bool) -> Seen {
    let Eyes {
        mut samples,
        stops,
        mut kernel,
        page,
    } = eyes;
    let mut seen = Seen {
        started_by: Stat::of(process).map_or(0, |stat| stat.parent),
        stops: stops.then_some(0),
        ..Seen::default()
    };
    // A process that has ended shows by having no sample.
    if let Err(refused) = &samples
        && !matches!(refused, Refused::Gone | Refused::Unwanted)
    {
        seen.refused = Some(refused.to_string());
    }
    let mut code = Code::default();
    let begun = Instant::now();
    let before = Stat::of(process);
    let mut after = before.clone();
    let mut memory_at = begun;
    let mut next_thread = 0;
    while !enough() && is_alive(process) {
        if let Ok(samples) = &mut samples {
            seen.take(samples, &mut code);
        }
        kernel.take(&mut code, seen.started_by);
        seen.look(process, &mut code, &mut next_thread);
        after = Stat::of(process).or(after);
        if Instant::now() >= memory_at {
            memory_at += MEMORY_INTERVAL;
            // A page that is being written, or gone, leaves what it said last.
            let heap = page.as_ref().and_then(|page| page.read().ok());
            seen.heap = heap.or(seen.heap);
            if let Some(rss) = resident(process).filter(|rss| *rss > 0) {
                seen.remember(begun.elapsed(), rss);
            }
            let mapped = mapping::files(process);
            if !mapped.is_empty() {
                seen.mapped = mapped;
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    if let Ok(samples) = &mut samples {
        seen.take(samples, &mut code);
        seen.without_kernel = !samples.has_kernel();
    }
    kernel.take(&mut code, seen.started_by);
    seen.kernel = kernel.report();
    seen.settle();
    seen.has_allocator = code.has_allocator();
    seen.seconds = begun.elapsed().as_secs_f64();
    if let (Some(before), Some(after)) = (before, after) {
        let seconds =
            |before, after: u64| stat::time_of(after.saturating_sub(before)).as_secs_f64();
        seen.cpu = (
            seconds(before.user_ticks, after.user_ticks),
            seconds(before.system_ticks, after.system_ticks),
        );
        seen.faults = after.faults.saturating_sub(before.faults);
    }
    seen
}

impl Seen {
    fn take(&mut self, samples: &mut Samples, code: &mut Code) {
        let (mut inside, mut outside, mut unknown) = (0, 0, 0);
        let started_by = self.started_by;
        self.lost += samples.drain(|sample| {
            if sample.pid == started_by {
                return;
            }
            let Some(registers) = sample.registers else {
                unknown += 1;
                return;
            };
            match code.is_inside(sample.pid, registers, &sample.stack) {
                Some(true) => inside += 1,
                Some(false) => outside += 1,
                None => unknown += 1,
            }
        });
        self.inside += inside;
        self.outside += outside;
        self.unknown += unknown;
    }

    fn look(&mut self, process: u32, code: &mut Code, next: &mut usize) {
        let threads = mallard_procfs::threads(process);
        let stops = self.stops.is_some() && self.refused.is_none();
        let mut running = Vec::new();
        self.threads = self.threads.max(threads.len() as u64);
        let first = *next % threads.len().max(1);
        *next = first + LOOK_THREADS_MAX;
        for &thread in threads
            .iter()
            .cycle()
            .skip(first)
            .take(LOOK_THREADS_MAX.min(threads.len()))
        {
            let does = self.each.entry(thread).or_default();
            match threads::doing(process, thread) {
                Doing::Running { .. } => {
                    does.running += 1;
                    running.extend(stops.then_some(thread));
                }
                Doing::Sleeping | Doing::Blocked => {
                    let wait = threads::waiting_for(process, thread);
                    // An allocator waits for nothing else.
                    let may = matches!(
                        wait,
                        Wait::Futex | Wait::Madvise | Wait::Mapping | Wait::PageFault
                    );
                    let inside = may && code.waits_inside(process, thread) == Some(true);
                    *does.waiting.entry((wait, inside)).or_default() += 1;
                }
                Doing::Gone => continue,
            }
            does.looks += 1;
        }
        for thread in running {
            self.stop(process, thread, code);
        }
    }

    /// Stops a thread that runs, to see where.
    fn stop(&mut self, process: u32, thread: u32, code: &mut Code) {
        let at = match stops::look(process, thread) {
            Ok(Some(at)) => at,
            Ok(None) => return,
            Err(error) => {
                self.refused = Some(format!("ptrace: {error}"));
                return;
            }
        };
        self.stops = self.stops.map(|count| count + 1);
        match code.is_inside(process, at.registers, &at.stack) {
            Some(true) => self.inside += 1,
            Some(false) => self.outside += 1,
            None => self.unknown += 1,
        }
    }

    /// Adds the threads up.
    fn settle(&mut self) {
        for does in std::mem::take(&mut self.each).into_values() {
            if let Some(wait) = does.parked_in() {
                *self.parked.entry(wait).or_default() += does.looks;
                continue;
            }
            self.looks += does.looks;
            self.running += does.running;
            for ((wait, inside), count) in does.waiting {
                let waiting = if inside {
                    &mut self.waiting_inside
                } else {
                    &mut self.waiting_outside
                };
                *waiting.entry(wait).or_default() += count;
            }
        }
    }

    fn remember(&mut self, since: Duration, rss: u64) {
        self.timeline.push(Moment {
            seconds: since.as_secs_f64(),
            live: (self.heap.as_ref()).map_or(0, |heap| heap.totals.allocated as i64),
            rss,
            lazy: None,
            calls_per_second: 0.0,
        });
    }

    /// Adds what another run of the same program has shown.
    pub fn add(&mut self, more: Seen) {
        self.inside += more.inside;
        self.outside += more.outside;
        self.unknown += more.unknown;
        self.lost += more.lost;
        self.kernel.add(more.kernel);
        self.looks += more.looks;
        self.running += more.running;
        self.has_allocator |= more.has_allocator;
        self.threads = self.threads.max(more.threads);
        let sum = |into: &mut BTreeMap<Wait, u64>, more: BTreeMap<Wait, u64>| {
            for (wait, count) in more {
                *into.entry(wait).or_default() += count;
            }
        };
        sum(&mut self.waiting_inside, more.waiting_inside);
        sum(&mut self.waiting_outside, more.waiting_outside);
        sum(&mut self.parked, more.parked);
        if more.timeline.len() > self.timeline.len() {
            self.timeline = more.timeline;
            self.mapped = more.mapped;
        }
    }

    pub fn samples(&self) -> u64 {
        self.inside + self.outside
    }

    /// Adds the shares of time to the figures.
    pub fn shares(&self, f: &mut Figures) {
        f.threads = self.threads;
        f.samples = self.samples();
        if f.samples > 0 && self.has_allocator {
            f.inside = Some(self.inside as f64 / f.samples as f64);
            let (low, high) = wilson(self.inside as f64, f.samples as f64);
            (f.inside_low, f.inside_high) = (Some(low), Some(high));
        }
        let sorted = |counts: &BTreeMap<Wait, u64>, of: u64| {
            let share = |(wait, count): (&Wait, &u64)| {
                (wait.name().to_owned(), *count as f64 / of.max(1) as f64)
            };
            let mut shares: Vec<(String, f64)> = counts.iter().map(share).collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1));
            shares
        };
        let waiting: u64 = self.waiting_inside.values().sum();
        let busy = waiting + self.running;
        f.waiting = (busy >= 20 && self.has_allocator).then(|| waiting as f64 / busy as f64);
        f.waits = sorted(&self.waiting_inside, busy);
        let (mut outside, mut looks) = (self.waiting_outside.clone(), self.looks);
        let computes = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
        if computes < COMPUTING_CPUS_MIN {
            // A program that hardly computes waits where its threads are parked.
            for (wait, count) in &self.parked {
                *outside.entry(*wait).or_default() += count;
                looks += count;
            }
        }
        f.waits_outside = sorted(&outside, looks);
        f.running = self.running as f64 / looks.max(1) as f64;
        let rss = self.timeline.iter().map(|moment| moment.rss);
        f.peak_rss = f.peak_rss.max(rss.max().unwrap_or(0));
        self.kernel.figures(f);
        if let Some(heap) = &self.heap {
            self.memory(f, heap);
        }
    }

    /// Adds what the process itself says of its heap.
    fn memory(&self, f: &mut Figures, heap: &Snapshot) {
        let (age, heap) = (heap.age.as_secs_f64(), &heap.totals);
        f.heap = Some(Heap {
            age_seconds: age,
            allocated: heap.allocated,
            active: heap.active,
            resident: heap.resident,
            free: heap.dirty + heap.muzzy,
            cached: heap.cached(),
            metadata: heap.metadata,
        });
        if age > FRESH_SECONDS_MAX {
            return;
        }
        let moments = self.timeline.iter().filter(|moment| moment.live > 0);
        let highest = moments.clone().max_by_key(|moment| moment.rss);
        f.live_at_peak = highest.map(|moment| moment.live);
        f.peak_live = Some(heap.peak.max(heap.allocated) as i64);
        let live: Vec<_> = moments.map(|m| (m.seconds, m.live as f64)).collect();
        f.grows = growth(&live);
    }

    /// How the share of CPU time was had, or why not, in a line.
    pub fn how(&self) -> String {
        let lost = match self.lost {
            0 => String::new(),
            lost => format!("; {lost} more were lost"),
        };
        match &self.refused {
            Some(reason) => reason.clone(),
            None if self.stops.is_some() => format!(
                "running threads were stopped for a moment {} times (ptrace)",
                self.stops.unwrap_or(0)
            ),
            None if self.without_kernel => format!(
                "samples of the kernel, 997 a second of CPU time, in user mode only \
                 (kernel.perf_event_paranoid is above 1){lost}"
            ),
            None => format!("samples of the kernel, 997 a second of CPU time{lost}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(looks: u64, running: u64, wait: Wait, inside: bool) -> Thread {
        Thread {
            looks,
            running,
            waiting: [((wait, inside), looks - running)].into(),
        }
    }

    #[test]
    fn a_background_thread_of_the_allocator_is_no_wait_for_a_lock() {
        let mut seen = Seen {
            has_allocator: true,
            ..Seen::default()
        };
        seen.each.insert(1, thread(100, 100, Wait::Futex, false));
        seen.each.insert(2, thread(100, 0, Wait::Futex, true));
        seen.settle();
        let mut f = Figures {
            wall_seconds: 1.0,
            user_seconds: 1.0,
            ..Figures::default()
        };
        seen.shares(&mut f);
        assert_eq!((f.waiting, f.running), (Some(0.0), 1.0));
        let outside: f64 = f.waits_outside.iter().map(|(_, share)| share).sum();
        assert!(f.waits.is_empty() && outside == 0.0, "{f:?}");
    }

    #[test]
    fn a_thread_that_waits_inside_now_and_then_waits_for_a_lock() {
        let mut seen = Seen {
            has_allocator: true,
            ..Seen::default()
        };
        seen.each.insert(1, thread(100, 60, Wait::Futex, true));
        seen.settle();
        let mut f = Figures {
            wall_seconds: 1.0,
            user_seconds: 1.0,
            ..Figures::default()
        };
        seen.shares(&mut f);
        assert_eq!(f.waiting, Some(0.4));
    }
}
