//! From figures to verdicts: whether malloc is a program's bottleneck, and why.
//!
//! [`model`] has the figures. [`share`], [`cost`] and [`mod@growth`] compute the less obvious ones.
//! `time` finds what the allocator does to the program's time. What it does to memory, how much
//! faster the program could be, and the answer are here, by the limits in [`thresholds`].
//! [`advice`] has what to try, and [`trial`] what that brought.

pub mod advice;
pub mod cost;
pub mod growth;
pub mod model;
pub mod share;
pub mod thresholds;
mod time;
pub mod trial;

use model::{Answer, Bound, Figures, Heap, TroubleKey};
use thresholds as limit;
pub use time::{GONE, HEAP, heap_faults};

/// The verdict.
#[derive(Debug)]
pub struct Verdict {
    pub answer: Answer,
    pub bound: Option<Bound>,
    /// What the allocator does to the program, the worst first.
    pub troubles: Vec<Finding>,
    /// What takes the time, if it is not the allocator.
    pub takes: Option<Finding>,
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
    /// The share of CPU time in page faults of the heap, and that of new pages among them.
    NewPages { faults: f64, new: f64 },
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
    /// What threads wait for outside the allocator, as a share of their time.
    WaitsOutside { kind: String, share: f64 },
    /// A front allocator of the program's own.
    Pool,
    /// The share of CPU time outside the allocator.
    Computes { outside: f64 },
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
    let bound = bound(f, about.cpus);
    let mut troubles = time::troubles(f, about.is_glibc);
    let memory = memory_troubles(f, about.has_pool);
    let fast_enough = bound.is_none_or(|bound| bound.high < limit::BOUND_FACTOR_MIN);
    // Nothing about time matters if no allocator makes the program faster; its memory may.
    let locks = f.waiting.unwrap_or(0.0) >= limit::LOCK_WAIT_SHARE_MIN;
    if fast_enough && !locks {
        troubles
            .retain(|trouble| matches!(trouble.key, TroubleKey::SlowPurge | TroubleKey::Growth));
    }
    if memory.iter().any(|trouble| trouble.key == TroubleKey::Leak) {
        // The heap grows because the program keeps more and more.
        troubles.retain(|trouble| trouble.key != TroubleKey::Growth);
    }
    troubles.extend(memory);
    let leak_only = troubles
        .iter()
        .all(|trouble| trouble.key == TroubleKey::Leak);
    let answer = match () {
        () if bound.is_none() && troubles.is_empty() && waits_only(f) => Answer::No,
        () if bound.is_none() && troubles.is_empty() => Answer::CannotTell,
        () if troubles.is_empty()
            && bound.is_some_and(|b| {
                b.low < limit::BOUND_FACTOR_MIN && b.high > limit::UNCLEAR_FACTOR_MIN
            }) =>
        {
            Answer::CannotTell
        }
        () if leak_only => Answer::No,
        () => Answer::Yes,
    };
    let takes = (answer == Answer::No || troubles.is_empty())
        .then(|| takes(f, about.has_pool))
        .flatten();
    Verdict {
        answer,
        bound,
        troubles,
        takes,
    }
}

/// Whether the program hardly computes, and was watched long enough to say so.
fn waits_only(f: &Figures) -> bool {
    let cpu = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    cpu < limit::BUSY_CPUS_MIN
        && f.wall_seconds >= limit::WAITING_SECONDS_MIN
        && !f.waits_outside.is_empty()
}

/// How much faster the program could be.
fn bound(f: &Figures, cpus: usize) -> Option<Bound> {
    let (low, high) = (f.inside_low?, f.inside_high?);
    if f.samples < limit::SAMPLES_MIN {
        return None;
    }
    let cpu = f.user_seconds + f.system_seconds;
    let saturated = cpu >= 0.95 * cpus as f64 * f.wall_seconds;
    let waiting = if saturated {
        0.0
    } else {
        f.waiting.unwrap_or(0.0)
    };
    // A share of CPU time, of the part of busy time that does not wait, of the time that is busy.
    let busy = busy(f);
    let gone = |inside: f64, faults: f64| {
        let share = waiting + (1.0 - waiting) * (inside + faults);
        1.0 / (1.0 - (busy * share).min(0.99))
    };
    let middle = (low + high) / 2.0;
    let grows = time::heap_grows(f);
    let faults = if grows {
        f.fault_share
    } else {
        f.refault_share
    };
    Some(Bound {
        low: gone(low, 0.0),
        high: gone(high, 0.0),
        // Where both are nearly all of the time, the estimate of faults takes too much.
        without_faults: (faults >= 0.005 && middle + faults < 0.95).then(|| gone(middle, faults)),
    })
}

/// The part of its wall time in which the program computes or waits for the allocator, at most:
/// what it sleeps besides becomes no shorter. Of several threads, those that sleep may be the same
/// all the time.
pub fn busy(f: &Figures) -> f64 {
    let asleep: f64 = f.waits_outside.iter().map(|(_, share)| share).sum();
    let awake = (1.0 - asleep).max(0.0) * f.threads.max(1) as f64;
    awake.min(1.0)
}

/// What the allocator does to the program's memory.
fn memory_troubles(f: &Figures, has_pool: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(growth) = &f.grows
        && growth.share >= limit::GROWTH_SHARE_MIN
        && growth.fit >= limit::GROWTH_FIT_MIN
    {
        found.push(Finding {
            key: TroubleKey::Leak,
            reason: Reason::Grows {
                bytes_per_second: growth.bytes_per_second,
            },
        });
        return found;
    }
    if let Some(heap) = &f.heap {
        return in_heap(heap, f.peak_rss).into_iter().collect();
    }
    let Some(end) = &f.end else { return found };
    let live = end.live.max(0) as u64;
    let kept = end.anonymous.saturating_sub(end.lazy);
    let excess = kept.saturating_sub(live);
    let ratio = kept as f64 / live.max(1) as f64;
    // A heap that never held this much cannot hold it back: the memory is the program's own. But
    // each of several arenas may hold what was needed once, and gives it back when asked to.
    let went_back = end.returned.is_some_and(|returned| returned >= excess / 2);
    let was_heap = f.peak_live.unwrap_or(0).max(0) as u64 >= kept / 2 || went_back;
    // A program that frees everything as it ends holds nothing back.
    let lasted = f.held_late.is_none_or(|share| share >= 0.5);
    if ratio < limit::HELD_FACTOR_MIN || excess < limit::HELD_BYTES_MIN || !was_heap || !lasted {
        return found;
    }
    let Some(returned) = end.returned else {
        return found;
    };
    let key = held_back_or_pinned(returned, excess);
    // What a pool of the program's own keeps looks pinned.
    if key == TroubleKey::HeldBack || !has_pool {
        found.push(Finding {
            key,
            reason: Reason::AtEnd {
                kept,
                live,
                returned,
            },
        });
    }
    found
}

/// What a process says of its own heap: memory beyond its live bytes is free pages and blocks,
/// which could go back, or lies between blocks.
fn in_heap(heap: &Heap, peak_rss: u64) -> Option<Finding> {
    let kept = (heap.active + heap.free + heap.metadata).min(peak_rss);
    let excess = kept.saturating_sub(heap.allocated);
    let ratio = kept as f64 / heap.allocated.max(1) as f64;
    let is_fresh = heap.age_seconds <= limit::FRESH_SECONDS_MAX;
    if ratio < limit::HELD_FACTOR_MIN || excess < limit::HELD_BYTES_MIN || !is_fresh {
        return None;
    }
    let free = heap.free + heap.cached;
    Some(Finding {
        key: held_back_or_pinned(free, excess),
        reason: Reason::InHeap {
            kept,
            live: heap.allocated,
            free,
        },
    })
}

/// Memory of which half at least is free is held back; blocks pin the rest.
fn held_back_or_pinned(free: u64, excess: u64) -> TroubleKey {
    if free * 2 >= excess {
        TroubleKey::HeldBack
    } else {
        TroubleKey::Pinned
    }
}

/// What takes the time instead.
fn takes(f: &Figures, has_pool: bool) -> Option<Finding> {
    let waits = f.waits_outside.iter();
    let longest = waits.min_by(|a, b| b.1.total_cmp(&a.1));
    if let Some((kind, share)) = longest
        && *share >= limit::OUTSIDE_WAIT_SHARE_MIN
        && *share > f.running
    {
        let key = match kind.as_str() {
            "futex" => TroubleKey::OwnLock,
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
        },
    })
}

#[cfg(test)]
mod tests;
