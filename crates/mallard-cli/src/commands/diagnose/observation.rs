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
use mallard_watch::perf::{Code, Refused, Samples};
use mallard_watch::stops;
use mallard_watch::threads::{self, Doing, Wait};
use mallard_watch::waits::Thread;

use super::kernel::{Kernel, Report};
use super::{figures, waits};

const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// Threads in one look; of more, the next look takes the next ones.
const LOOK_THREADS_MAX: usize = 64;

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
    pub threads: u64,
    /// What each of them did. Those of several runs are all here.
    each: BTreeMap<(u32, u32), Thread>,
    /// The run that this is of, the first being 0.
    run: u32,
    /// For how long a signal or a debugger held it.
    pub held_seconds: f64,
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
        if after.as_ref().is_some_and(Stat::is_held) {
            seen.held_seconds += LOOK_INTERVAL.as_secs_f64();
        }
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
            let waits = match threads::doing(process, thread) {
                Doing::Running { .. } => false,
                Doing::Sleeping | Doing::Blocked => true,
                Doing::Gone | Doing::Stopped => continue,
            };
            let does = self.each.entry((self.run, thread)).or_default();
            does.look(process, thread);
            if !waits {
                does.running += 1;
                running.extend(stops.then_some(thread));
                continue;
            }
            let wait = threads::waiting_for(process, thread);
            // An allocator waits for nothing else.
            let may = matches!(
                wait,
                Wait::Lock
                    | Wait::Thread
                    | Wait::Futex
                    | Wait::Madvise
                    | Wait::Mapping
                    | Wait::PageFault
            );
            let waiting = if may && code.waits_inside(process, thread) == Some(true) {
                &mut does.inside
            } else {
                &mut does.outside
            };
            *waiting.entry(wait).or_default() += 1;
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
        self.held_seconds += more.held_seconds;
        self.has_allocator |= more.has_allocator;
        self.threads = self.threads.max(more.threads);
        self.run += 1;
        let threads = more.each.into_iter();
        let run = self.run;
        self.each
            .extend(threads.map(|((_, id), thread)| ((run, id), thread)));
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
        let cpus = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
        waits::of_threads(f, self.each.values(), cpus);
        // Which waits are inside is known by names only.
        f.waiting = f.waiting.filter(|_| self.has_allocator);
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
        f.live_at_peak = figures::live_at_peak(moments.clone().map(|m| (m.rss, m.live)));
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

    fn thread(looks: u64, running: u64, wait: Wait) -> Thread {
        Thread {
            looks,
            running,
            inside: (looks > running)
                .then_some((wait, looks - running))
                .into_iter()
                .collect(),
            ..Thread::default()
        }
    }

    fn figures_of(threads: impl IntoIterator<Item = Thread>) -> Figures {
        let seen = Seen {
            has_allocator: true,
            each: (1..).map(|id| (0, id)).zip(threads).collect(),
            ..Seen::default()
        };
        let mut f = Figures {
            wall_seconds: 1.0,
            user_seconds: 1.0,
            ..Figures::default()
        };
        seen.shares(&mut f);
        f
    }

    #[test]
    fn a_background_thread_of_the_allocator_is_no_wait_for_a_lock() {
        let f = figures_of([thread(100, 100, Wait::Futex), thread(100, 0, Wait::Futex)]);
        assert_eq!((f.waiting, f.running), (Some(0.0), 1.0));
        assert!(f.waits.is_empty() && f.waits_outside.is_empty(), "{f:?}");
    }

    #[test]
    fn a_thread_that_waits_inside_now_and_then_waits_for_a_lock() {
        assert_eq!(figures_of([thread(100, 60, Wait::Lock)]).waiting, Some(0.4));
    }
}
