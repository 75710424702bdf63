//! What the allocator does to the program's time: one function for each trouble.

use mallard_figures::percent;
use mallard_observe::family::Family;
use mallard_observe::perf::memory::Region;
use mallard_report::diagnosis::{Figures, Trouble, TroubleKey};
use mallard_report::units;

use super::super::thresholds as limit;
use super::trouble;

/// All of them, the worst first.
pub fn troubles(f: &Figures, family: Family) -> Vec<Trouble> {
    let memory = || to_and_fro(f).or_else(|| growth(f));
    let mut found: Vec<Trouble> = [locks(f), memory(), slow_purge(f), hand_off(f)]
        .into_iter()
        .flatten()
        .collect();
    // These two only explain what none of the others does.
    if found.is_empty() {
        found.extend(caches(f, family).or_else(|| work(f)));
    }
    found
}

fn locks(f: &Figures) -> Option<Trouble> {
    let waiting = f
        .waiting
        .filter(|share| *share >= limit::LOCK_WAIT_SHARE_MIN)?;
    let by_kind = |name: &str| {
        let of = f.waits.iter().find(|(kind, _)| kind == name);
        of.map_or(0.0, |(_, share)| *share)
    };
    let kernel = by_kind("madvise") + by_kind("mmap") + by_kind("page fault");
    let what = if by_kind("futex") >= kernel {
        "threads wait for the allocator’s locks"
    } else {
        "threads wait inside the allocator for the kernel’s lock of the address space"
    };
    let because = format!(
        "waits {} ≥ {}",
        percent(waiting),
        percent(limit::LOCK_WAIT_SHARE_MIN)
    );
    Some(trouble(TroubleKey::Locks, what, because))
}

fn growth(f: &Figures) -> Option<Trouble> {
    heap_grows(f).then(|| {
        let because = format!(
            "page faults take {} ≥ {} of CPU time, {} of them for new pages",
            percent(heap_faults(f)),
            percent(limit::FAULT_CPU_SHARE_MIN),
            percent(1.0 - f.refaults.unwrap_or(0.0))
        );
        trouble(TroubleKey::Growth, "the heap grows page by page", because)
    })
}

fn slow_purge(f: &Figures) -> Option<Trouble> {
    // A call that waits to change mappings but does not free asks for memory. On a busy machine,
    // the first calls of a program's threads wait so for each other while each makes its arena.
    let gives_back = |kind: &str| matches!(kind, "free" | "madvise");
    let long = f.long_calls.iter().filter(|(kind, _)| gives_back(kind));
    let slow: u64 = long.map(|(_, n)| n).sum();
    let rate = slow as f64 / f.wall_seconds.max(1e-3) / f64::from(f.runs.max(1));
    (slow >= 3 && rate >= limit::SLOW_FREES_PER_SECOND_MIN).then(|| {
        let because = format!(
            "{slow} frees spent more than 1 ms in the kernel, the longest {}",
            units::seconds(f.longest_call_seconds)
        );
        let what = "frees wait for memory to be given back";
        trouble(TroubleKey::SlowPurge, what, because)
    })
}

fn hand_off(f: &Figures) -> Option<Trouble> {
    let elsewhere = f.calls.freed_elsewhere?;
    let inside = f.inside?;
    (elsewhere >= limit::HAND_OFF_SHARE_MIN && inside >= limit::WORK_CPU_SHARE_MIN).then(|| {
        let because = format!(
            "{} ≥ {} of blocks are freed by another thread, malloc and free take {}",
            percent(elsewhere),
            percent(limit::HAND_OFF_SHARE_MIN),
            percent(inside)
        );
        let what = "blocks change threads before they are freed";
        trouble(TroubleKey::HandOff, what, because)
    })
}

fn caches(f: &Figures, family: Family) -> Option<Trouble> {
    let middle = f.calls.middle_bytes?;
    let works = f.inside? >= limit::WORK_CPU_SHARE_MIN;
    (middle >= limit::MIDDLE_BYTES_SHARE_MIN && works && family != Family::Glibc).then(|| {
        let because = format!(
            "{} ≥ {} of bytes",
            percent(middle),
            percent(limit::MIDDLE_BYTES_SHARE_MIN)
        );
        let what = "requests of 32 to 256 KiB bypass the thread caches";
        trouble(TroubleKey::Caches, what, because)
    })
}

fn work(f: &Figures) -> Option<Trouble> {
    let inside = f
        .inside
        .filter(|share| *share >= limit::WORK_CPU_SHARE_MIN)?;
    let because = format!("malloc and free take {} of CPU time", percent(inside));
    let what = "the program calls the allocator very often";
    Some(trouble(TroubleKey::Work, what, because))
}

/// Whether page faults of malloc's heap take time because it grows. The start of a program has
/// faults too, and so has a heap of its own (V8, a mapped file).
pub fn heap_grows(f: &Figures) -> bool {
    let live = f.peak_live.unwrap_or(0).max(0) as u64;
    let is_malloc_s = match f.peak_live {
        Some(_) => live >= f.peak_rss / 2,
        // For a process that is seen from outside, the addresses decide.
        None => in_heap(f).is_some_and(|share| share >= 0.5),
    };
    heap_faults(f) >= limit::FAULT_CPU_SHARE_MIN
        && f.refaults.unwrap_or(0.0) < limit::REFAULT_SHARE_MIN
        && f.faults >= limit::FAULTS_MIN
        && is_malloc_s
}

/// The share of page faults that lie in a heap, of those whose mapping was seen. A heap that grows
/// fast is ahead of the lab, which reads the mappings at intervals.
fn in_heap(f: &Figures) -> Option<f64> {
    let share = |region: Region| {
        let kind = f.fault_kinds.iter().find(|(kind, _)| kind == region.name());
        kind.map_or(0.0, |(_, share)| *share)
    };
    let seen = 1.0 - share(Region::Gone);
    (!f.fault_kinds.is_empty() && seen > 0.0).then(|| share(Region::Heap) / seen)
}

/// The share of CPU time in page faults of the heap, as far as it is known which they are.
pub fn heap_faults(f: &Figures) -> f64 {
    f.fault_share * in_heap(f).unwrap_or(1.0)
}

/// Memory that is returned to the system and requested again, and how.
fn to_and_fro(f: &Figures) -> Option<Trouble> {
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
    if !often && !gives {
        return None;
    }
    let (key, how) = match () {
        () if giving < 1.0 => (TroubleKey::ToAndFro, ""),
        () if madvise >= munmap.max(brk) => {
            (TroubleKey::Decay, ": pages are given back by madvise")
        }
        () if brk >= munmap => (
            TroubleKey::Trim,
            ": the top of the heap is trimmed and grown again by brk",
        ),
        () => (
            TroubleKey::Mmap,
            ": large blocks are mapped and unmapped one by one",
        ),
    };
    let mut because = Vec::new();
    if often {
        because.push(format!(
            "{} ≥ {} of page faults are on pages that had been there before",
            percent(refaults),
            percent(limit::REFAULT_SHARE_MIN)
        ));
    }
    if gives {
        because.push(format!(
            "{} calls that give memory back",
            units::rate(giving)
        ));
    }
    let what = format!("memory is returned to the system and requested again{how}");
    Some(trouble(key, &what, because.join("; ")))
}
