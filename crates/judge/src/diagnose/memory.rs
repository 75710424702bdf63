//! What the allocator does to the program's memory.

use super::model::{Answer, Figures, Heap, TroubleKey};
use super::thresholds as limit;
use super::{Finding, KeptAt, Reason};

/// The memory that a block keeps from going back: the slab or the pages that it shares with others.
const PINNED_BYTES_MAX: u64 = 64 << 10;

/// The answer about memory, and what it rests on.
pub fn judged(f: &Figures, has_pool: bool) -> (Answer, Vec<Finding>) {
    let found = match (&f.heap, &f.end) {
        (Some(heap), _) => in_heap(heap, f.peak_rss),
        (None, Some(_)) => at_end(f, has_pool),
        (None, None) => None,
    };
    let leak = leak(f);
    match found.filter(|found| found.key != TroubleKey::Kept || leak.is_none()) {
        // What the allocator keeps, it keeps beside what the program does.
        Some(found) if found.key == TroubleKey::Kept => return (Answer::Perhaps, vec![found]),
        Some(found) => return (Answer::Yes, [found].into_iter().chain(leak).collect()),
        None => {}
    }
    if let Some(leak) = leak {
        return (Answer::No, vec![leak]);
    }
    if let Some(found) = at_peak(f, has_pool) {
        return (Answer::Perhaps, vec![found]);
    }
    let is_known = f.heap.is_some() || f.peak_live.is_some();
    // So little memory is no trouble.
    if is_known || f.peak_rss < limit::HELD_BYTES_MIN {
        (Answer::No, Vec::new())
    } else {
        (Answer::CannotTell, Vec::new())
    }
}

/// Live bytes that grow all the time are the program's own.
fn leak(f: &Figures) -> Option<Finding> {
    let growth = f.grows.as_ref()?;
    let grows = growth.share >= limit::GROWTH_SHARE_MIN && growth.fit >= limit::GROWTH_FIT_MIN;
    grows.then_some(Finding {
        key: TroubleKey::Leak,
        reason: Reason::Grows {
            bytes_per_second: growth.bytes_per_second,
        },
    })
}

/// Whether memory is as far above live bytes as matters.
fn is_excess(kept: u64, live: u64) -> bool {
    kept as f64 >= live.max(1) as f64 * limit::HELD_FACTOR_MIN
        && kept.saturating_sub(live) >= limit::HELD_BYTES_MIN
}

/// Memory at the end, and what went back then.
fn at_end(f: &Figures, has_pool: bool) -> Option<Finding> {
    let end = f.end.as_ref()?;
    let live = end.live.max(0) as u64;
    let kept = end.anonymous.saturating_sub(end.lazy);
    // A heap that never held this much cannot hold it back: the memory is the program's own. But
    // each of several arenas may hold what was needed once, and gives it back when asked to.
    let went_back = end
        .returned
        .is_some_and(|returned| returned >= kept.saturating_sub(live) / 2);
    let was_heap = f.peak_live.unwrap_or(0).max(0) as u64 >= kept / 2 || went_back;
    // A program that frees everything as it ends holds nothing back.
    let lasted = f.held_late.is_none_or(|share| share >= 0.5);
    if !is_excess(kept, live) || !was_heap || !lasted {
        return None;
    }
    let Some(returned) = end.returned else {
        return Some(Finding {
            key: TroubleKey::Kept,
            reason: Reason::Above {
                kept,
                live,
                at: KeptAt::End,
            },
        });
    };
    let excess = kept - live;
    let blocks = f.calls.mallocs.saturating_sub(f.calls.frees);
    // So few blocks pin no more than this. What is beyond it, the allocator keeps even when asked.
    let can_pin =
        f.calls.frees == 0 || blocks * PINNED_BYTES_MAX >= (excess - returned.min(excess)) / 2;
    let key = if can_pin {
        held_back_or_pinned(returned, excess)
    } else {
        TroubleKey::HeldBack
    };
    // What a pool of the program's own keeps looks pinned.
    (key == TroubleKey::HeldBack || !has_pool).then_some(Finding {
        key,
        reason: Reason::AtEnd {
            kept,
            live,
            returned,
        },
    })
}

/// Memory at the peak of RSS. Nobody has asked then what the allocator could return.
fn at_peak(f: &Figures, has_pool: bool) -> Option<Finding> {
    let live = f.live_at_peak?.max(0) as u64;
    let was_heap = f.peak_live.unwrap_or(0).max(0) as u64 >= f.peak_rss / 2;
    (is_excess(f.peak_rss, live) && was_heap && !has_pool).then_some(Finding {
        key: TroubleKey::Kept,
        reason: Reason::Above {
            kept: f.peak_rss,
            live,
            at: match f.end {
                Some(_) => KeptAt::PeakOnly,
                None => KeptAt::Peak,
            },
        },
    })
}

/// What a process says of its own heap: memory beyond its live bytes is free pages and blocks,
/// which could go back, or lies between blocks.
fn in_heap(heap: &Heap, peak_rss: u64) -> Option<Finding> {
    let kept = (heap.active + heap.free + heap.metadata).min(peak_rss);
    let is_fresh = heap.age_seconds <= limit::FRESH_SECONDS_MAX;
    if !is_excess(kept, heap.allocated) || !is_fresh {
        return None;
    }
    let free = heap.free + heap.cached;
    Some(Finding {
        key: held_back_or_pinned(free, kept - heap.allocated),
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
