//! What options of Mallard and jemalloc can do against a trouble: most have the same names.

use super::super::model::{Figures, TroubleKey};
use super::super::{Finding, Reason};
use super::{Allocator, Facts, HugePages, Setting, changes_threads, is_alone, threads_each};

/// What is free for so long goes back by default.
const DEFAULT_DECAY_MS: i64 = 10_000;
const LONG_DECAY_MS: i64 = 30_000;
const SHORT_DECAY_MS: i64 = 1_000;
/// By default there are so many arenas for each CPU.
const ARENAS_PER_CPU: usize = 4;
/// The largest block that is worth its place in a thread cache, and the largest that always is.
const LARGE_CACHED_BYTES: u64 = 256 << 10;
const SMALL_CACHED_BYTES: u64 = 4 << 10;

/// The options of the allocator in use.
pub fn settings(f: &Figures, trouble: &Finding, facts: &Facts) -> Option<Vec<Setting>> {
    match trouble.key {
        TroubleKey::Locks => match trouble.reason {
            Reason::Waits {
                for_kernel: true, ..
            } => longer_decay(facts),
            _ => more_arenas(f, facts),
        },
        TroubleKey::Decay | TroubleKey::Trim | TroubleKey::Mmap | TroubleKey::ToAndFro => {
            longer_decay(facts)
        }
        TroubleKey::Growth => huge_pages(facts),
        TroubleKey::SlowPurge => in_background(f, facts).or_else(|| longer_decay(facts)),
        TroubleKey::Caches => larger_caches(facts),
        TroubleKey::HeldBack => {
            let caches = smaller_caches(f, facts).unwrap_or_default();
            let decay = shorter_decay(f, facts).unwrap_or_default();
            Some([caches, decay].concat()).filter(|both| !both.is_empty())
        }
        TroubleKey::Pinned => smaller_caches(f, facts).or_else(|| fewer_arenas(f, facts)),
        _ => None,
    }
}

/// The options that a program on another allocator is to have on Mallard; none if Mallard is no
/// answer to the trouble.
pub fn of_mallard(f: &Figures, trouble: &Finding, facts: &Facts) -> Option<Vec<Setting>> {
    let facts = Facts {
        allocator: Allocator::Mallard,
        set: Vec::new(),
        ..facts.clone()
    };
    match trouble.key {
        TroubleKey::Growth => huge_pages(&facts),
        TroubleKey::HeldBack | TroubleKey::Pinned => shorter_decay(f, &facts),
        TroubleKey::SlowPurge => Some(in_background(f, &facts).unwrap_or_default()),
        _ => Some(Vec::new()),
    }
}

fn decay(facts: &Facts) -> i64 {
    facts.number("dirty_decay_ms").unwrap_or(DEFAULT_DECAY_MS)
}

/// Negative values keep memory for good.
fn longer_decay(facts: &Facts) -> Option<Vec<Setting>> {
    let now = decay(facts);
    let longer = match now {
        ..0 => return None,
        LONG_DECAY_MS.. => -1,
        _ => LONG_DECAY_MS,
    };
    Some(vec![Setting::new("dirty_decay_ms", longer)])
}

/// Pages go back after a second. Where the only thread sleeps, nothing calls the allocator, and
/// another thread must do it.
fn shorter_decay(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let mut settings = in_background(f, facts).unwrap_or_default();
    let now = decay(facts);
    if !(0..=SHORT_DECAY_MS).contains(&now) {
        settings.push(Setting::new("dirty_decay_ms", SHORT_DECAY_MS));
    }
    (!settings.is_empty()).then_some(settings)
}

/// Mallard has a background thread as soon as the program has threads, jemalloc if it is set.
fn in_background(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let has = match facts.value("background_thread") {
        Some("true") => true,
        Some("false") => false,
        _ => facts.allocator == Allocator::Mallard && !is_alone(f),
    };
    (!has).then(|| vec![Setting::new("background_thread", true)])
}

fn huge_pages(facts: &Facts) -> Option<Vec<Setting>> {
    let can = facts.huge_pages != HugePages::Never && facts.value("thp") != Some("always");
    can.then(|| vec![Setting::new("thp", "always")])
}

/// The arenas that are set, if any are, and those that there are.
fn arenas(facts: &Facts) -> (Option<i64>, usize) {
    let set = facts.number("narenas").filter(|arenas| *arenas > 0);
    let usual = ARENAS_PER_CPU * facts.cpus;
    (set, set.map_or(usual, |arenas| arenas as usize))
}

/// An arena for each CPU, where threads have to share them.
fn more_arenas(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let threads = threads_each(f);
    let (set, arenas) = arenas(facts);
    if is_alone(f) || changes_threads(f) || facts.value("percpu_arena").is_some() {
        return None;
    }
    if set.is_some() && arenas < threads.min(ARENAS_PER_CPU * facts.cpus) {
        return Some(vec![Setting::new("narenas", ARENAS_PER_CPU * facts.cpus)]);
    }
    (threads > arenas).then(|| vec![Setting::new("percpu_arena", "percpu")])
}

fn fewer_arenas(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let wanted = facts.cpus.max(2);
    let (_, arenas) = arenas(facts);
    (!is_alone(f) && arenas.min(threads_each(f)) > wanted)
        .then(|| vec![Setting::new("narenas", wanted)])
}

fn larger_caches(facts: &Facts) -> Option<Vec<Setting>> {
    let is_set = bytes(facts.value("tcache_max")).is_some_and(|max| max >= LARGE_CACHED_BYTES);
    (!is_set).then(|| vec![Setting::new("tcache_max", "256k")])
}

/// Where most of what is free lies in thread caches, decay does not reach it.
fn smaller_caches(f: &Figures, facts: &Facts) -> Option<Vec<Setting>> {
    let is_cached = match &f.heap {
        Some(heap) => heap.cached > heap.free,
        // The allocator does not tell, but it was told to keep larger blocks than it would.
        None => {
            let max = bytes(facts.value("tcache_max"));
            max.is_some_and(|max| max > LARGE_CACHED_BYTES)
        }
    };
    let is_set = bytes(facts.value("tcache_max")).is_some_and(|max| max <= SMALL_CACHED_BYTES);
    (is_cached && !is_set).then(|| vec![Setting::new("tcache_max", SMALL_CACHED_BYTES)])
}

/// A size such as `32768` or `256k`.
fn bytes(value: Option<&str>) -> Option<u64> {
    let value = value?;
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match value[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    Some(digits.parse::<u64>().ok()? << unit)
}
