//! What the allocator does to the program's time: one function for each trouble.

use super::model::{Figures, TroubleKey};
use super::thresholds as limit;
use super::{Finding, Reason};

/// The kind of page faults ([`Figures::fault_kinds`]) in heaps of any allocator.
pub const HEAP: &str = "heap";
/// The kind of those whose mapping was gone before it could be looked at.
pub const GONE: &str = "mappings gone since";

/// All of them, the worst first.
pub fn troubles(f: &Figures, is_glibc: bool) -> Vec<Finding> {
    let memory = || to_and_fro(f).or_else(|| growth(f));
    let mut found: Vec<Finding> = [locks(f), memory(), slow_purge(f), hand_off(f)]
        .into_iter()
        .flatten()
        .collect();
    // These two only explain what none of the others does.
    if found.is_empty() {
        found.extend(caches(f, is_glibc).or_else(|| work(f)));
    }
    found
}

fn locks(f: &Figures) -> Option<Finding> {
    let share = f
        .waiting
        .filter(|share| *share >= limit::LOCK_WAIT_SHARE_MIN)?;
    let by_kind = |name: &str| {
        let of = f.waits.iter().find(|(kind, _)| kind == name);
        of.map_or(0.0, |(_, share)| *share)
    };
    let kernel = by_kind("madvise") + by_kind("mmap") + by_kind("page fault");
    Some(Finding {
        key: TroubleKey::Locks,
        reason: Reason::Waits {
            share,
            for_kernel: by_kind("futex") < kernel,
        },
    })
}

fn growth(f: &Figures) -> Option<Finding> {
    heap_grows(f).then(|| Finding {
        key: TroubleKey::Growth,
        reason: Reason::NewPages {
            faults: heap_faults(f),
            new: f.refaults.map(|again| 1.0 - again),
        },
    })
}

fn slow_purge(f: &Figures) -> Option<Finding> {
    // A call that waits to change mappings but does not free asks for memory. On a busy machine,
    // the first calls of a program's threads wait so for each other while each makes its arena.
    let gives_back = |kind: &str| matches!(kind, "free" | "madvise");
    let long = f.long_calls.iter().filter(|(kind, _)| gives_back(kind));
    let count: u64 = long.map(|(_, n)| n).sum();
    let rate = count as f64 / f.wall_seconds.max(1e-3) / f64::from(f.runs.max(1));
    (count >= 3 && rate >= limit::SLOW_FREES_PER_SECOND_MIN).then_some(Finding {
        key: TroubleKey::SlowPurge,
        reason: Reason::SlowFrees {
            count,
            longest_seconds: f.longest_call_seconds,
        },
    })
}

fn hand_off(f: &Figures) -> Option<Finding> {
    let blocks = f.calls.freed_elsewhere?;
    let inside = f.inside?;
    (blocks >= limit::HAND_OFF_SHARE_MIN && inside >= limit::WORK_CPU_SHARE_MIN).then_some(
        Finding {
            key: TroubleKey::HandOff,
            reason: Reason::FreedElsewhere { blocks, inside },
        },
    )
}

fn caches(f: &Figures, is_glibc: bool) -> Option<Finding> {
    let middle = f.calls.middle_bytes?;
    let works = f.inside? >= limit::WORK_CPU_SHARE_MIN;
    (middle >= limit::MIDDLE_BYTES_SHARE_MIN && works && !is_glibc).then_some(Finding {
        key: TroubleKey::Caches,
        reason: Reason::MiddleBytes(middle),
    })
}

fn work(f: &Figures) -> Option<Finding> {
    any_work(f).filter(|_| f.inside >= Some(limit::WORK_CPU_SHARE_MIN))
}

/// The work of the allocator, however little.
pub fn any_work(f: &Figures) -> Option<Finding> {
    Some(Finding {
        key: TroubleKey::Work,
        reason: Reason::Work { inside: f.inside? },
    })
}

/// Whether page faults of malloc's heap take time because it grows.
pub fn heap_grows(f: &Figures) -> bool {
    heap_faults(f) >= limit::FAULT_CPU_SHARE_MIN
        && f.refaults.unwrap_or(0.0) < limit::REFAULT_SHARE_MIN
        && is_heap_malloc_s(f)
}

/// Whether the memory is malloc's, and not that of a heap of the program's own (V8, a mapped file)
/// or of its start.
pub fn is_heap_malloc_s(f: &Figures) -> bool {
    let live = f.peak_live.unwrap_or(0).max(0) as u64;
    let is_malloc_s = match f.peak_live {
        Some(_) => live >= f.peak_rss / 2,
        // For a process that is seen from outside, the addresses decide.
        None => in_heap(f).is_some_and(|share| share >= 0.5),
    };
    is_malloc_s && f.faults >= limit::FAULTS_MIN
}

/// The share of page faults that lie in a heap, of those whose mapping was seen. A heap that grows
/// fast is ahead of the lab, which reads the mappings at intervals.
fn in_heap(f: &Figures) -> Option<f64> {
    let share = |wanted: &str| {
        let kind = f.fault_kinds.iter().find(|(kind, _)| kind == wanted);
        kind.map_or(0.0, |(_, share)| *share)
    };
    let seen = 1.0 - share(GONE);
    (!f.fault_kinds.is_empty() && seen > 0.0).then(|| share(HEAP) / seen)
}

/// The share of CPU time in page faults of the heap, as far as it is known which they are.
pub fn heap_faults(f: &Figures) -> f64 {
    f.fault_share * in_heap(f).unwrap_or(1.0)
}

/// Memory that is returned to the system and requested again, and how.
pub fn to_and_fro(f: &Figures) -> Option<Finding> {
    let rate = |name: &str| {
        f.syscalls
            .iter()
            .find(|(kind, _, _)| kind == name)
            .map_or(0.0, |s| s.1)
    };
    let (madvise, munmap, brk) = (rate("madvise"), rate("munmap"), rate("brk"));
    let giving = madvise + munmap + brk;
    let refaults = f.refaults.unwrap_or(0.0);
    let often = refaults >= limit::REFAULT_SHARE_MIN && f.faults > limit::FAULTS_MIN;
    // A heap that only grows calls brk too, and any program makes some calls as it starts.
    let gives = giving >= limit::GIVING_CALLS_PER_SECOND_MIN
        && giving * f.wall_seconds >= limit::GIVING_CALLS_MIN
        && refaults >= limit::GIVING_REFAULT_SHARE_MIN;
    // Calls that were counted and were not the allocator's: a heap of the program's own goes and
    // comes (V8).
    let is_other_s = !f.syscalls.is_empty() && giving < 1.0;
    if (!often && !gives) || is_other_s {
        return None;
    }
    let key = match () {
        () if giving < 1.0 => TroubleKey::ToAndFro,
        () if madvise >= munmap.max(brk) => TroubleKey::Decay,
        () if brk >= munmap => TroubleKey::Trim,
        () => TroubleKey::Mmap,
    };
    Some(Finding {
        key,
        reason: Reason::Returned {
            again: often.then_some(refaults),
            calls_per_second: gives.then_some(giving),
        },
    })
}
