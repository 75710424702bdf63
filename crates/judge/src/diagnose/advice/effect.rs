//! What a trouble costs, and what a change can bring, as far as the figures tell.

use super::super::model::{Figures, Heap};
use super::super::{Bound, Finding, Reason, heap_faults};
use super::{Change, Effect, Figure};

/// The usual page, and a huge page of a system that has it.
const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// The part of a growing heap that gets huge pages at least, where they are asked for.
const HUGE_SHARE_MIN: f64 = 0.75;
/// Memory over live bytes in a heap without any trouble.
const USUAL_OVERHEAD_FACTOR: f64 = 1.5;
/// A bound above this says only that the program does hardly anything else.
const BOUND_MAX: f64 = 20.0;

/// The share of its wall time or of its memory that the trouble costs the program.
pub fn cost(f: &Figures, trouble: &Finding, bound: Option<Bound>) -> f64 {
    // A program that hardly computes has little time to win, whatever the share of that.
    let cpus = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    let waiting = f.waiting.unwrap_or(0.0).min(0.99);
    let at_work = (cpus / (1.0 - waiting)).min(1.0);
    let in_time = |share: f64| (share * at_work).clamp(0.0, 1.0);
    let of_bound = bound.map_or(0.0, |bound| 1.0 - 1.0 / bound.high.max(1.0));
    match &trouble.reason {
        Reason::Grows { .. } => f.grows.map_or(1.0, |growth| growth.share),
        Reason::AtEnd { kept, live, .. }
        | Reason::InHeap { kept, live, .. }
        | Reason::Above { kept, live, .. } => {
            // What is kept at the end may be little beside the peak.
            kept.saturating_sub(*live) as f64 / f.peak_rss.max(*kept).max(1) as f64
        }
        Reason::Waits { share, .. } => in_time(of_bound.max(*share)),
        Reason::NewPages { .. } => in_time(heap_faults(f)),
        Reason::Returned { .. } => in_time(of_bound.max(f.refault_share)),
        Reason::SlowFrees { .. } => in_time(of_bound.max(f.refault_share) * 0.9),
        _ => in_time(of_bound * 0.8),
    }
}

fn page_bytes(f: &Figures) -> u64 {
    if f.page_bytes == 0 {
        return PAGE_BYTES;
    }
    f.page_bytes
}

/// A huge page is one fault instead of so many. Where pages are larger, a huge page is larger than
/// what Mallard asks for.
fn pages_per_huge_page(f: &Figures) -> f64 {
    if page_bytes(f) > PAGE_BYTES {
        return 1.0;
    }
    (HUGE_PAGE_BYTES / PAGE_BYTES) as f64
}

/// What the change can bring against the trouble.
pub fn of(f: &Figures, change: &Change, trouble: &Finding, bound: Option<Bound>) -> Option<Effect> {
    if !change.can_be_tried() {
        return None;
    }
    let effect = |now: f64, low: f64, high: f64| Effect {
        figure: Figure::of(&trouble.key),
        now,
        low: low.min(now),
        high: high.min(now),
    };
    match &trouble.reason {
        // Every page of the peak comes once. Mallard asks for huge pages.
        Reason::Returned { .. } => {
            let now = f.faults as f64;
            let first = (f.peak_rss as f64 / page_bytes(f) as f64).max(now * (1.0 - f.refaults?));
            let least = match change {
                Change::Mallard(_) => first / pages_per_huge_page(f),
                _ => first,
            };
            Some(effect(now, least, first))
        }
        Reason::NewPages { .. } => {
            let now = f.faults as f64;
            let heap = now * in_heap(f);
            let others = now - heap;
            let left = |huge: f64| others + heap * (1.0 - huge + huge / pages_per_huge_page(f));
            Some(effect(now, left(1.0), left(HUGE_SHARE_MIN)))
        }
        Reason::AtEnd {
            kept,
            live,
            returned,
        } => {
            let (now, files) = f
                .end
                .map(|end| (end.rss, end.rss - end.anonymous.min(end.rss)))?;
            let kept_least = kept.saturating_sub(*returned) + files;
            let least = (*live + files).min(kept_least) as f64;
            let most = match change {
                // Arenas hold no more than all of them needed at a time.
                Change::Options { settings, .. } if settings[0].name == "arena_max" => {
                    let peak = f.peak_live?.max(0) as f64;
                    peak * USUAL_OVERHEAD_FACTOR + files as f64
                }
                _ => (*live as f64 * USUAL_OVERHEAD_FACTOR + files as f64).max(kept_least as f64),
            };
            Some(effect(now as f64, least, most))
        }
        Reason::InHeap { .. } => {
            let Heap {
                allocated,
                free,
                resident,
                ..
            } = f.heap?;
            let now = resident as f64;
            Some(effect(now, allocated as f64, now - free as f64))
        }
        Reason::Waits { .. } | Reason::FreedElsewhere { .. } | Reason::Work { .. } => {
            let bound = bound.filter(|bound| (1.0..BOUND_MAX).contains(&bound.high))?;
            Some(effect(
                f.wall_seconds,
                f.wall_seconds / bound.high,
                f.wall_seconds,
            ))
        }
        _ => None,
    }
}

/// The share of page faults in heaps.
fn in_heap(f: &Figures) -> f64 {
    if f.fault_share > 0.0 {
        (heap_faults(f) / f.fault_share).clamp(0.0, 1.0)
    } else {
        0.0
    }
}
