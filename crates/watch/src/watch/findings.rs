//! What a watch has seen.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::probe::segments::{Counts, End};
use crate::threads::Wait;

/// A thread that waits for one thing in this share of all looks is parked there.
pub const PARKED_SHARE: f64 = 0.995;

/// What one run of a program has shown.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Every image of every process that was observed, in the order of their appearance.
    pub images: Vec<Image>,
    /// Looks at threads that ran, inside the allocator and outside.
    pub running_inside: u64,
    pub running_outside: u64,
    /// The same, at threads that had computed for most of the time since the look before, and on
    /// another CPU than the watch: those were at work during the look.
    pub computing_inside: u64,
    pub computing_outside: u64,
    /// Looks at threads that waited inside the allocator, by what for.
    pub waiting_inside: BTreeMap<Wait, u64>,
    /// The same outside.
    pub waiting_outside: BTreeMap<Wait, u64>,
    /// Looks at threads altogether.
    pub looks: u64,
    /// Looks at threads that waited for one thing all the time, such as a main thread that waits
    /// for the others; they are not in `waiting_outside`.
    pub parked: BTreeMap<Wait, u64>,
    pub seconds: f64,
    /// Calls of the allocator that waited longer than a millisecond, by what for, without those in
    /// `long_frees`.
    pub long_calls: BTreeMap<Wait, u64>,
    /// Calls that free or resize and computed longer than a millisecond, which is the kernel's work
    /// on pages, or waited that long in a system call that changes mappings.
    pub long_frees: u64,
    pub longest_call: Duration,
    /// Memory over time.
    pub memory: Vec<Memory>,
    /// Files that the main process had mapped at the last reading.
    pub mapped: Vec<String>,
    /// Thread-seconds that were looked at: each look of each thread stands for its interval.
    pub thread_seconds: f64,
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
    /// Ticks of the time-stamp counter in a second.
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

    /// The image with the most memory.
    pub fn largest(&self) -> Option<&Image> {
        let rss = |image: &&Image| image.end.map_or(image.peak_rss, |end| end.rss);
        self.images.iter().max_by_key(rss)
    }
}
