//! What a watch has seen.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::probe::segments::{Counts, End};
use crate::threads::Wait;
use crate::waits::Thread;

/// What one run of a program has shown.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Every image of every process that was observed, in the order of their ends.
    pub images: Vec<Image>,
    /// What each process was seen to do.
    pub processes: BTreeMap<u32, Process>,
    pub seconds: f64,
    /// Memory over time.
    pub memory: Vec<Memory>,
    /// Files that the main process had mapped at the last reading.
    pub mapped: Vec<String>,
    /// Thread-seconds that were looked at: each look of each thread stands for its interval.
    pub thread_seconds: f64,
    /// For how long the first process was held by a signal or a debugger.
    pub held_seconds: f64,
}

/// What one process was seen to do.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// The process that started it.
    pub parent: u32,
    /// Times of the first reading and the last.
    pub first_seconds: f64,
    pub last_seconds: f64,
    /// User and system time, and page faults, by the last reading.
    pub user: Duration,
    pub system: Duration,
    pub faults: u64,
    pub looks: Looks,
    /// Its memory over time.
    pub memory: Vec<Memory>,
}

impl Process {
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// Looks at the threads of a process.
#[derive(Debug, Clone, Default)]
pub struct Looks {
    /// Looks at threads that had computed for most of the time since the look before, and on
    /// another CPU than the watch: those were at work during the look, inside the allocator or
    /// outside.
    pub computing_inside: u64,
    pub computing_outside: u64,
    pub threads: Vec<Thread>,
    /// Calls of the allocator that waited longer than a millisecond, by what for, without those in
    /// `long_frees`.
    pub long_calls: BTreeMap<Wait, u64>,
    /// Calls that free or resize and computed longer than a millisecond, which is the kernel's work
    /// on pages, or waited that long in a system call that changes mappings.
    pub long_frees: u64,
    pub longest_call: Duration,
}

/// One image of a process: what ran between an exec (or a fork) and the next exec or its end.
#[derive(Debug, Clone)]
pub struct Image {
    pub pid: u32,
    pub program: String,
    /// The object that serves malloc.
    pub allocator: String,
    pub counts: Counts,
    pub end: Option<End>,
    /// Whether it returned from `main` or called `exit`.
    pub ended: bool,
    pub forked_from: u32,
    pub peak_rss: u64,
    /// The most live bytes, by the probe's own count.
    pub peak_live: i64,
    pub no_timer: bool,
    /// Ticks of the processor's counter in a second.
    pub ticks_per_second: f64,
}

/// Memory of all processes at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Memory {
    pub seconds: f64,
    pub live: i64,
    pub rss: u64,
    /// None where it was not read.
    pub lazy: Option<u64>,
    /// Calls until then.
    pub calls: u64,
}

impl Findings {
    /// All images added up.
    pub fn total(&self) -> Counts {
        let mut total = Counts {
            sizes: vec![0; crate::probe::layout::CLASSES],
            lifetimes: vec![0; crate::probe::layout::CLASSES],
            ..Counts::default()
        };
        for image in &self.images {
            let counts = &image.counts;
            let add = |sums: &mut [u64], more: &[u64]| {
                sums.iter_mut()
                    .zip(more)
                    .for_each(|(sum, more)| *sum += more);
            };
            add(&mut total.calls, &counts.calls);
            add(&mut total.sizes, &counts.sizes);
            add(&mut total.lifetimes, &counts.lifetimes);
            for (row, more) in total.matrix.iter_mut().zip(&counts.matrix) {
                add(row, more);
            }
            total.requested += counts.requested;
            total.live += counts.live;
            total.failed += counts.failed;
            total.ticks_inside += counts.ticks_inside;
            total.ticks_outside += counts.ticks_outside;
            total.threads += counts.threads;
            total.freed_here += counts.freed_here;
            total.freed_elsewhere += counts.freed_elsewhere;
        }
        total
    }

    /// The image that called the allocator most.
    pub fn main(&self) -> Option<&Image> {
        self.images
            .iter()
            .max_by_key(|image| image.counts.calls.iter().sum::<u64>())
    }

    /// What all processes were seen to do.
    pub fn looks(&self) -> impl Iterator<Item = &Looks> + Clone {
        self.processes.values().map(|process| &process.looks)
    }

    /// Looks at threads that were at work, inside the allocator and outside.
    pub fn computing(&self) -> (u64, u64) {
        self.looks().fold((0, 0), |(inside, outside), looks| {
            (
                inside + looks.computing_inside,
                outside + looks.computing_outside,
            )
        })
    }

    /// The process that computed most, and its share of the CPU time of all, of which some may not
    /// have been seen; none if there is one process only.
    pub fn heaviest(&self, of_all: Duration) -> Option<(u32, f64)> {
        let cpu = |process: &Process| process.cpu().as_secs_f64();
        let seen: f64 = self.processes.values().map(cpu).sum();
        let all = seen.max(of_all.as_secs_f64());
        let heaviest = self
            .processes
            .iter()
            .max_by(|a, b| cpu(a.1).total_cmp(&cpu(b.1)))?;
        let is_one_of_several = self.processes.len() > 1 && all > 0.0;
        is_one_of_several.then(|| (*heaviest.0, cpu(heaviest.1) / all))
    }

    /// The threads of all processes. What a process was before an `exec` counts as the same.
    pub fn threads(&self) -> u64 {
        let mut by_process: BTreeMap<u32, u64> = BTreeMap::new();
        for image in &self.images {
            let threads = by_process.entry(image.pid).or_default();
            *threads = image.counts.threads.max(*threads);
        }
        by_process.values().sum()
    }

    /// What was found of one process only.
    pub fn of(&self, pid: u32) -> Findings {
        let images = self.images.iter().filter(|image| image.pid == pid);
        let process = self.processes.get(&pid);
        Findings {
            images: images.cloned().collect(),
            memory: process.map_or_else(Vec::new, |process| process.memory.clone()),
            processes: process
                .map(|process| (pid, process.clone()))
                .into_iter()
                .collect(),
            mapped: self.mapped.clone(),
            seconds: self.seconds,
            thread_seconds: self.thread_seconds,
            held_seconds: self.held_seconds,
        }
    }

    /// The image with the most memory.
    pub fn largest(&self) -> Option<&Image> {
        let rss = |image: &&Image| image.end.map_or(image.peak_rss, |end| end.rss);
        self.images.iter().max_by_key(rss)
    }
}
