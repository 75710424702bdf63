//! From figures to verdicts. Nothing here measures: figures in, words out.
//!
//! [`time`] finds what the allocator does to the program's time. What it does to memory, how much
//! faster the program could be, and the answer are here. [`words`] makes the sentence of it,
//! [`next`] the commands to try.

mod next;
mod time;
mod words;

use mallard_figures::percent;
use mallard_observe::family::{Family, Pool};
use mallard_report::diagnosis::{Answer, Bound, Figures, Heap, Next, Trouble, TroubleKey};
use mallard_report::units;

use super::thresholds as limit;
pub use words::sentence;

/// The verdict.
#[derive(Debug)]
pub struct Verdict {
    pub answer: Answer,
    pub sentence: String,
    pub bound: Option<Bound>,
    pub troubles: Vec<Trouble>,
    pub takes: Option<Trouble>,
    pub next: Vec<Next>,
}

/// What is known besides figures.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub family: Family,
    pub pool: Option<Pool>,
    /// CPUs that the program may use.
    pub cpus: usize,
    /// The program as the user typed it, or the command that starts the service.
    pub typed: &'a str,
    /// What `mallard compare` takes for it.
    pub subject: &'a str,
    /// Whether it ends by itself, or with its load.
    pub ends: bool,
}

pub fn judge(f: &Figures, about: About) -> Verdict {
    let bound = bound(f, about.cpus);
    let mut troubles = time::troubles(f, about.family);
    let memory = memory_troubles(f, about.pool);
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
        .then(|| takes(f, about.pool))
        .flatten();
    let sentence = sentence(f, answer, bound, &troubles, takes.as_ref());
    // Of several processes, each.
    let alone = f.threads > 0 && f.threads <= f.processes;
    let next = next::next(&troubles, answer, alone, about);
    Verdict {
        answer,
        sentence,
        bound,
        troubles,
        takes,
        next,
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
fn busy(f: &Figures) -> f64 {
    let asleep: f64 = f.waits_outside.iter().map(|(_, share)| share).sum();
    let awake = (1.0 - asleep).max(0.0) * f.threads.max(1) as f64;
    awake.min(1.0)
}

fn trouble(key: TroubleKey, what: &str, because: String) -> Trouble {
    Trouble {
        key,
        what: what.to_owned(),
        because,
    }
}

/// What the allocator does to the program's memory.
fn memory_troubles(f: &Figures, pool: Option<Pool>) -> Vec<Trouble> {
    let mut found = Vec::new();
    if let Some(growth) = &f.grows
        && growth.share >= limit::GROWTH_SHARE_MIN
        && growth.fit >= limit::GROWTH_FIT_MIN
    {
        let because = format!(
            "live bytes grow by {} a second through the whole run",
            units::bytes(growth.bytes_per_second)
        );
        found.push(trouble(
            TroubleKey::Leak,
            "the program keeps more and more blocks itself",
            because,
        ));
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
    // A heap that never held this much cannot hold it back: the memory is the program's own.
    let was_heap = f.peak_live.unwrap_or(0).max(0) as u64 >= kept / 2;
    // A program that frees everything as it ends holds nothing back.
    let lasted = f.held_late.is_none_or(|share| share >= 0.5);
    if ratio < limit::HELD_FACTOR_MIN || excess < limit::HELD_BYTES_MIN || !was_heap || !lasted {
        return found;
    }
    let Some(returned) = end.returned else {
        return found;
    };
    let because = format!(
        "memory at the end is {} for {} of live bytes; {} went back when asked to",
        units::bytes(kept as f64),
        units::bytes(live as f64),
        units::bytes(returned as f64)
    );
    if returned * 2 >= excess {
        found.push(trouble(
            TroubleKey::HeldBack,
            "the allocator keeps free memory",
            because,
        ));
    } else if pool.is_none() {
        found.push(trouble(TroubleKey::Pinned, PINNED, because));
    }
    found
}

/// What a process says of its own heap: memory beyond its live bytes is free pages and blocks,
/// which could go back, or lies between blocks.
fn in_heap(heap: &Heap, peak_rss: u64) -> Option<Trouble> {
    let kept = (heap.active + heap.free + heap.metadata).min(peak_rss);
    let excess = kept.saturating_sub(heap.allocated);
    let ratio = kept as f64 / heap.allocated.max(1) as f64;
    let is_fresh = heap.age_seconds <= limit::FRESH_SECONDS_MAX;
    if ratio < limit::HELD_FACTOR_MIN || excess < limit::HELD_BYTES_MIN || !is_fresh {
        return None;
    }
    let free = heap.free + heap.cached;
    let because = format!(
        "the heap has {} for {} of live bytes; {} are free pages and blocks in caches",
        units::bytes(kept as f64),
        units::bytes(heap.allocated as f64),
        units::bytes(free as f64)
    );
    Some(if free * 2 >= excess {
        trouble(
            TroubleKey::HeldBack,
            "the allocator keeps free memory",
            because,
        )
    } else {
        trouble(TroubleKey::Pinned, PINNED, because)
    })
}

const PINNED: &str = "live blocks pin pages that are nearly free (fragmentation)";

/// What takes the time instead.
fn takes(f: &Figures, pool: Option<Pool>) -> Option<Trouble> {
    let mut waits: Vec<&(String, f64)> = f.waits_outside.iter().collect();
    waits.sort_by(|a, b| b.1.total_cmp(&a.1));
    let cpu = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    if let Some((kind, share)) = waits.first()
        && *share >= limit::OUTSIDE_WAIT_SHARE_MIN
        && *share > f.running
    {
        let (key, what) = match kind.as_str() {
            "futex" => (
                TroubleKey::OwnLock,
                "threads wait for locks of the program’s own",
            ),
            "file or socket" => (TroubleKey::Io, "threads wait for files, pipes or sockets"),
            "events" => (TroubleKey::Idle, "threads wait for events"),
            "sleep" => (TroubleKey::Idle, "the program sleeps"),
            "child process" => (TroubleKey::Child, "the program waits for its children"),
            _ => (TroubleKey::Waits, "threads wait outside the allocator"),
        };
        let because = format!("{} of thread time, {kind}", percent(*share));
        return Some(trouble(key, what, because));
    }
    if let Some(pool) = pool {
        return Some(trouble(
            TroubleKey::Pool,
            pool.advice,
            format!("its allocator is {}", pool.name),
        ));
    }
    (f.samples >= limit::SAMPLES_MIN && cpu >= 0.05).then(|| {
        let because = format!(
            "{} of CPU time is outside",
            percent(1.0 - f.inside.unwrap_or(0.0))
        );
        trouble(TroubleKey::Computing, "the program computes", because)
    })
}

#[cfg(test)]
mod tests;
