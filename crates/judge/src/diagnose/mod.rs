//! From figures to verdicts: whether malloc is a program's bottleneck, and why.
//!
//! [`model`] has the figures. [`share`], [`cost`] and [`mod@growth`] compute the less obvious ones.
//! `bound` says how much faster the program could be. `time` and `memory` find what the allocator
//! does to the program's time and to its memory. The answers are here, one for each of the two, by
//! the limits in [`thresholds`]. [`advice`] has what to try, and [`trial`] what that brought.

pub mod advice;
mod bound;
pub mod cost;
pub mod growth;
mod memory;
pub mod model;
pub mod share;
pub mod thresholds;
mod time;
pub mod trial;

pub use bound::{busy, fault_share};
use model::{Answer, Aspect, Bound, BusyThread, Figures, TroubleKey};
use thresholds as limit;
pub use time::{GONE, HEAP, heap_faults};

/// The verdict.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the allocator costs time, and whether it keeps memory.
    pub time: Answer,
    pub memory: Answer,
    /// The one of the two that matters more.
    pub graver: Aspect,
    pub bound: Option<Bound>,
    /// What makes an answer about time of PERHAPS.
    pub settle: Option<Settle>,
    /// What the allocator does to the program, the worst first.
    pub troubles: Vec<Finding>,
    /// What takes the time, if it is not the allocator.
    pub takes: Option<Finding>,
}

impl Verdict {
    /// One answer for both questions.
    pub fn answer(&self) -> Answer {
        let either = |answer| self.time == answer || self.memory == answer;
        match () {
            () if either(Answer::Yes) => Answer::Yes,
            () if either(Answer::Perhaps) => Answer::Perhaps,
            () if self.time == Answer::CannotTell => Answer::CannotTell,
            () => Answer::No,
        }
    }
}

/// What narrows an interval down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Settle {
    /// About so many times as many samples.
    Samples { times: f64 },
    /// A run in which the cost of the probe is measured.
    ProbeCost,
    /// A machine on which runs differ less.
    QuietMachine,
    /// Only a comparison: the interval is narrow and lies on both sides.
    Comparison,
}

/// Something that was found, and what shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub key: TroubleKey,
    pub reason: Reason,
}

/// What shows a finding. Shares are of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// The share of their time that threads wait inside the allocator, and whether it is mostly
    /// for the kernel's lock of the address space.
    Waits { share: f64, for_kernel: bool },
    /// The share of CPU time in page faults of the heap, and that of new pages among them, where it
    /// is known.
    NewPages { faults: f64, new: Option<f64> },
    /// Frees that spent more than a millisecond in the kernel.
    SlowFrees { count: u64, longest_seconds: f64 },
    /// The share of blocks that another thread frees, and the CPU share of the allocator.
    FreedElsewhere { blocks: f64, inside: f64 },
    /// The share of requested bytes that thread caches do not keep.
    MiddleBytes(f64),
    /// The share of CPU time inside the allocator.
    Work { inside: f64 },
    /// The share of page faults on pages that had been there before, and the calls a second that
    /// give memory back, where these decided.
    Returned {
        again: Option<f64>,
        calls_per_second: Option<f64>,
    },
    /// Live bytes grow through the whole run.
    Grows { bytes_per_second: f64 },
    /// Memory at the end, the live bytes in it, and what went back when asked to.
    AtEnd { kept: u64, live: u64, returned: u64 },
    /// The same as the allocator says it of its own heap, and what is free in it.
    InHeap { kept: u64, live: u64, free: u64 },
    /// Memory and live bytes at a time at which the allocator was not asked to return anything.
    Above { kept: u64, live: u64, at: KeptAt },
    /// What threads wait for outside the allocator, as a share of their time.
    WaitsOutside { kind: String, share: f64 },
    /// A front allocator of the program's own.
    Pool,
    /// The share of CPU time outside the allocator, and the thread that computes nearly all the
    /// time, if there are several.
    Computes {
        outside: f64,
        thread: Option<BusyThread>,
    },
}

/// When memory was far above live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptAt {
    End,
    /// At the peak of RSS, and not at the end.
    PeakOnly,
    /// At the peak of RSS; the end is not known.
    Peak,
}

/// What is known besides figures.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Whether its allocator is glibc's, whose thread caches hold small blocks alone.
    pub is_glibc: bool,
    /// Whether the program has a front allocator of its own.
    pub has_pool: bool,
    /// CPUs that the program may use.
    pub cpus: usize,
}

pub fn judge(f: &Figures, about: About) -> Verdict {
    let waits_only = waits_only(f);
    // The share of hardly any CPU time decides nothing.
    let bound = bound::bound(f, about.cpus).filter(|_| !waits_only);
    let (memory, of_memory) = memory::judged(f, about.has_pool);
    let mut troubles = time::troubles(f, about.is_glibc);
    if of_memory
        .iter()
        .any(|trouble| trouble.key == TroubleKey::Leak)
    {
        // The heap grows because the program keeps more and more.
        troubles.retain(|trouble| trouble.key != TroubleKey::Growth);
    }
    if f.samples < limit::SAMPLES_MIN {
        // These rest on the share of CPU time.
        troubles.retain(|trouble| {
            !matches!(
                trouble.key,
                TroubleKey::HandOff | TroubleKey::Caches | TroubleKey::Work
            )
        });
    }
    // Calls that take long were counted one by one: no bound is needed to see them.
    let spikes = |trouble: &Finding| trouble.key == TroubleKey::SlowPurge;
    let time = match bound {
        _ if troubles.iter().any(spikes) => Answer::Yes,
        Some(bound) if bound.low >= limit::BOUND_FACTOR_MIN => Answer::Yes,
        Some(bound) if bound.high < limit::BOUND_FACTOR_MIN => Answer::No,
        Some(_) => Answer::Perhaps,
        None if waits_only => Answer::No,
        None if !troubles.is_empty() => Answer::Perhaps,
        None => Answer::CannotTell,
    };
    let gains = bound.is_some_and(|bound| bound.high >= limit::BOUND_FACTOR_MIN);
    if !gains && time != Answer::Perhaps {
        troubles.retain(spikes);
    }
    if troubles.is_empty() && time == Answer::Yes {
        troubles.extend(time::any_work(f));
    }
    let takes = (time == Answer::No || troubles.is_empty())
        .then(|| takes(f, about.has_pool))
        .flatten();
    let graver = graver((time, memory), bound, &of_memory, f.peak_rss);
    let by_time = troubles.len();
    troubles.extend(of_memory);
    if graver == Aspect::Memory {
        troubles.rotate_left(by_time);
    }
    Verdict {
        time,
        memory,
        graver,
        settle: (time == Answer::Perhaps).then(|| bound::settle(f, bound)),
        bound,
        troubles,
        takes,
    }
}

/// Which answer comes first: that of the worse kind, and of two of one kind that of the larger
/// factor: how much faster the program could be, or how much smaller.
fn graver(
    (time, memory): (Answer, Answer),
    bound: Option<Bound>,
    of_memory: &[Finding],
    peak_rss: u64,
) -> Aspect {
    let rank = |answer, leaks| match answer {
        Answer::Yes => 4,
        Answer::Perhaps => 3,
        // The allocator is not at fault, but memory runs out.
        Answer::No if leaks => 2,
        Answer::CannotTell => 1,
        Answer::No => 0,
    };
    let leaks = of_memory.iter().any(|found| found.key == TroubleKey::Leak);
    let excess = of_memory.iter().map(|found| found.reason.excess()).max();
    let needed = peak_rss.saturating_sub(excess.unwrap_or(0)).max(1);
    let larger = peak_rss as f64 / needed as f64 > bound.map_or(1.0, |bound| bound.low);
    match rank(memory, leaks).cmp(&rank(time, false)) {
        std::cmp::Ordering::Greater => Aspect::Memory,
        std::cmp::Ordering::Equal if rank(time, false) >= 3 && larger => Aspect::Memory,
        _ => Aspect::Time,
    }
}

impl Reason {
    /// How many bytes are there beside live ones.
    fn excess(&self) -> u64 {
        match self {
            Reason::AtEnd { kept, live, .. }
            | Reason::InHeap { kept, live, .. }
            | Reason::Above { kept, live, .. } => kept.saturating_sub(*live),
            _ => 0,
        }
    }
}

/// Whether the program hardly computes, and was watched long enough to say so.
fn waits_only(f: &Figures) -> bool {
    let cpu = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    cpu < limit::BUSY_CPUS_MIN
        && f.wall_seconds >= limit::WAITING_SECONDS_MIN
        && !f.waits_outside.is_empty()
}

/// What takes the time instead.
fn takes(f: &Figures, has_pool: bool) -> Option<Finding> {
    let waits = f.waits_outside.iter();
    let longest = waits.min_by(|a, b| b.1.total_cmp(&a.1));
    // Threads that wait for work, or for each other, are no answer while one of them computes.
    let busiest = f.busiest_thread.as_ref();
    let computes = busiest.is_some_and(|thread| thread.share >= limit::BUSY_THREAD_SHARE_MIN);
    let for_work = |kind: &str| matches!(kind, "another thread" | "futex" | "events");
    if let Some((kind, share)) = longest
        && *share >= limit::OUTSIDE_WAIT_SHARE_MIN
        && *share > f.running
        && !(computes && for_work(kind))
    {
        let key = match kind.as_str() {
            "lock" => TroubleKey::OwnLock,
            "file or socket" => TroubleKey::Io,
            "events" | "sleep" => TroubleKey::Idle,
            "child process" => TroubleKey::Child,
            _ => TroubleKey::Waits,
        };
        return Some(Finding {
            key,
            reason: Reason::WaitsOutside {
                kind: kind.clone(),
                share: *share,
            },
        });
    }
    if has_pool {
        return Some(Finding {
            key: TroubleKey::Pool,
            reason: Reason::Pool,
        });
    }
    let cpu = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    (f.samples >= limit::SAMPLES_MIN && cpu >= limit::BUSY_CPUS_MIN).then(|| Finding {
        key: TroubleKey::Computing,
        reason: Reason::Computes {
            outside: 1.0 - f.inside.unwrap_or(0.0),
            thread: busiest.filter(|_| computes).cloned(),
        },
    })
}

#[cfg(test)]
mod tests;
