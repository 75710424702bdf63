//! What options of glibc can do against a trouble.

use super::super::model::{Figures, TroubleKey};
use super::super::{Finding, Reason};
use super::{Facts, HugePages, Setting, changes_threads, is_alone, threads_each};

/// glibc makes an arena for each thread up to so many for each CPU.
const ARENAS_PER_CPU: usize = 8;
/// More than any block or free top of a heap: nothing goes back.
const KEEP_ALL_BYTES: u64 = 1 << 30;
/// The threshold of mmap at the start. To set it keeps it: otherwise it grows with the blocks.
const MMAP_THRESHOLD_BYTES: u64 = 128 << 10;
/// The share of requests above 64 KiB from which a fixed threshold of mmap returns most memory.
const LARGE_SHARE_MIN: f64 = 0.5;
/// Arenas that hold so much more than ever lived at a time have it several times over.
const SPREAD_FACTOR_MIN: f64 = 1.5;

pub fn settings(f: &Figures, trouble: &Finding, facts: &Facts) -> Option<Vec<Setting>> {
    match trouble.key {
        TroubleKey::Locks => match trouble.reason {
            // Threads that map and return memory wait for the kernel, whatever the arenas.
            Reason::Waits {
                for_kernel: true, ..
            } => keep_all(facts),
            // A block goes back to its own arena, so that each thread needs the locks of all.
            _ if changes_threads(f) => fewer_arenas(f, facts),
            _ => more_arenas(f, facts),
        },
        TroubleKey::HandOff => fewer_arenas(f, facts),
        TroubleKey::Decay
        | TroubleKey::Trim
        | TroubleKey::Mmap
        | TroubleKey::ToAndFro
        | TroubleKey::SlowPurge => keep_all(facts),
        TroubleKey::Growth => huge_pages(facts),
        TroubleKey::HeldBack | TroubleKey::Pinned => {
            large_blocks(f, facts).or_else(|| is_spread(f).then(|| fewer_arenas(f, facts))?)
        }
        _ => None,
    }
}

/// Arenas there can be, and as many as threads have made.
fn arenas(f: &Figures, facts: &Facts) -> (usize, usize) {
    let set = facts.number("arena_max").filter(|max| *max > 0);
    let limit = set.map_or(ARENAS_PER_CPU * facts.cpus, |max| max as usize);
    (limit, limit.min(threads_each(f)))
}

/// Up to as many as glibc makes by itself: of more threads than that, few run at a time.
fn more_arenas(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let (limit, made) = arenas(f, facts);
    let wanted = threads_each(f).min(ARENAS_PER_CPU * facts.cpus);
    (!is_alone(f) && made == limit && limit < wanted)
        .then(|| vec![Setting::new("arena_max", wanted)])
}

/// As many as CPUs: as many threads can need one at a time.
fn fewer_arenas(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let wanted = facts.cpus.max(2);
    let (_, made) = arenas(f, facts);
    (!is_alone(f) && made > wanted).then(|| vec![Setting::new("arena_max", wanted)])
}

/// Whether memory was never needed at one time, so that it is there once for each arena.
fn is_spread(f: &Figures) -> bool {
    let (Some(peak), Some(end)) = (f.peak_live, &f.end) else {
        return false;
    };
    end.anonymous as f64 >= SPREAD_FACTOR_MIN * peak.max(0) as f64
}

fn keep_all(facts: &Facts) -> Option<Vec<Setting>> {
    let names = ["trim_threshold", "mmap_threshold"];
    let is_set = |name: &&str| {
        facts
            .number(name)
            .is_some_and(|n| n as u64 >= KEEP_ALL_BYTES)
    };
    (!names.iter().all(is_set)).then(|| {
        let keep = |name: &&str| Setting::new(name, KEEP_ALL_BYTES);
        names.iter().map(keep).collect()
    })
}

/// Large blocks go back one by one, unless the threshold has grown beyond them.
fn large_blocks(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let is_large = f.calls.large.is_some_and(|share| share >= LARGE_SHARE_MIN);
    let is_fixed = facts.value("mmap_threshold").is_some();
    (is_large && !is_fixed).then(|| vec![Setting::new("mmap_threshold", MMAP_THRESHOLD_BYTES)])
}

fn huge_pages(facts: &Facts) -> Option<Vec<Setting>> {
    // Where the kernel gives them always, the heap has them; where never, nobody gets any.
    let is_set = facts.number("hugetlb").is_some_and(|kind| kind > 0);
    (facts.huge_pages == HugePages::OnRequest && !is_set).then(|| vec![Setting::new("hugetlb", 1)])
}
