use super::super::judge;
use super::super::model::{Calls, EndMemory, Growth};
use super::*;

fn facts() -> Facts {
    Facts {
        allocator: Allocator::Glibc,
        cpus: 2,
        set: Vec::new(),
        huge_pages: HugePages::OnRequest,
        takes_another: true,
        ends: true,
    }
}

/// A busy program with this share of its time in malloc, in so many threads.
fn figures(inside: f64, threads: u64) -> Figures {
    Figures {
        processes: 1,
        threads,
        ..super::super::tests::figures(inside)
    }
}

fn advised(f: &Figures, facts: &Facts) -> Vec<Suggestion> {
    let known = super::super::About {
        is_glibc: facts.allocator == Allocator::Glibc,
        has_pool: false,
        cpus: facts.cpus,
    };
    let verdict = judge(f, known);
    let found = advise(f, &verdict.troubles, verdict.bound, verdict.answer(), facts);
    assert!(found.len() <= SUGGESTIONS_MAX, "{found:?}");
    found
}

/// The options of all suggestions, as `name=value`.
fn options(found: &[Suggestion]) -> Vec<String> {
    let settings = found.iter().filter_map(|one| match &one.change {
        Change::Options { settings, .. } | Change::Mallard(settings) => Some(settings),
        _ => None,
    });
    settings
        .flatten()
        .map(|setting| format!("{}={}", setting.name, setting.value))
        .collect()
}

fn with_locks(threads: u64) -> Figures {
    let mut f = figures(0.3, threads);
    f.waiting = Some(0.2);
    f.waits = vec![("futex".to_owned(), 0.2)];
    f
}

fn holding(threads: u64, peak_live: i64) -> Figures {
    let mut f = figures(0.01, threads);
    f.peak_live = Some(peak_live);
    f.peak_rss = 210 << 20;
    f.end = Some(EndMemory {
        rss: 204 << 20,
        lazy: 0,
        anonymous: 200 << 20,
        live: 10 << 20,
        returned: Some(180 << 20),
    });
    f
}

#[test]
fn more_arenas_are_for_threads_that_have_none_of_their_own() {
    let arenas = |f: &Figures, set: &[(&str, i32)]| {
        let mut facts = facts();
        facts.set = set.iter().map(|(name, n)| Setting::new(name, n)).collect();
        options(&advised(f, &facts))
    };
    // glibc has 16 arenas for 2 CPUs already.
    assert!(arenas(&with_locks(50), &[]).is_empty());
    assert_eq!(
        arenas(&with_locks(50), &[("arena_max", 1)]),
        ["arena_max=16"]
    );
    assert_eq!(arenas(&with_locks(8), &[("arena_max", 1)]), ["arena_max=8"]);
    assert!(arenas(&with_locks(8), &[("arena_max", 8)]).is_empty());
    assert!(arenas(&with_locks(1), &[("arena_max", 1)]).is_empty());
    // Blocks that change threads take the locks of all arenas, however many there are.
    let mut relay = with_locks(16);
    relay.calls.freed_elsewhere = Some(0.5);
    assert_eq!(arenas(&relay, &[]), ["arena_max=2"]);
}

#[test]
fn no_two_suggestions_contradict_each_other() {
    let mut f = holding(50, 60 << 20);
    let facts = Facts {
        set: vec![Setting::new("arena_max", 4)],
        ..facts()
    };
    f.inside = Some(0.3);
    (f.inside_low, f.inside_high) = (Some(0.29), Some(0.31));
    f.waiting = Some(0.2);
    let found = advised(&f, &facts);
    let all = options(&found);
    let arenas = all.iter().filter(|option| option.starts_with("arena_max"));
    assert_eq!(arenas.count(), 1, "{all:?}");
    let on_mallard = |one: &&Suggestion| matches!(one.change, Change::Mallard(_));
    assert_eq!(found.iter().filter(on_mallard).count(), 1, "{found:?}");
}

#[test]
fn one_thread_has_no_use_for_arenas() {
    let alone = advised(&holding(1, 200 << 20), &facts());
    let change = Change::Mallard(vec![
        Setting::new("background_thread", true),
        Setting::new("dirty_decay_ms", 1000),
    ]);
    assert_eq!(alone[0].change, change);
    let all = options(&advised(&holding(1, 90 << 20), &facts()));
    assert!(all.iter().all(|option| !option.starts_with("arena")));
    // As many processes as threads: each is alone.
    let mut several = holding(3, 90 << 20);
    several.processes = 3;
    let all = options(&advised(&several, &facts()));
    assert!(all.iter().all(|option| !option.starts_with("arena")));
}

#[test]
fn fewer_arenas_are_for_memory_that_was_never_needed_at_one_time() {
    let spread = advised(&holding(16, 100 << 20), &facts());
    assert!(options(&spread).contains(&"arena_max=2".to_owned()));
    let arenas = spread
        .iter()
        .find(|one| matches!(one.change, Change::Options { .. }));
    let effect = arenas.unwrap().effect.unwrap();
    assert_eq!(effect.figure, Figure::LateRss);
    assert_eq!(effect.now, f64::from(204 << 20));
    assert!(effect.low < effect.high && effect.high < effect.now);
    let needed = options(&advised(&holding(16, 190 << 20), &facts()));
    assert!(
        !needed.iter().any(|it| it.starts_with("arena")),
        "{needed:?}"
    );
}

#[test]
fn decay_alone_is_nothing_for_a_program_whose_only_thread_sleeps() {
    let of = |threads, allocator, set: &[(&str, &str)]| {
        let set = set.iter().map(|(name, value)| Setting::new(name, value));
        let facts = Facts {
            allocator,
            set: set.collect(),
            ..facts()
        };
        options(&advised(&holding(threads, 200 << 20), &facts))
    };
    let both = ["background_thread=true", "dirty_decay_ms=1000"];
    assert_eq!(of(1, Allocator::Mallard, &[]), both);
    assert_eq!(of(4, Allocator::Mallard, &[]), both[1..]);
    // jemalloc starts none by itself, and Mallard none where it was told so.
    assert_eq!(of(4, Allocator::Jemalloc, &[])[1..], both);
    let off = [("background_thread", "false")];
    assert_eq!(of(4, Allocator::Mallard, &off), both);
    let short = [("dirty_decay_ms", "500")];
    assert_eq!(of(1, Allocator::Mallard, &short), both[..1]);
    assert!(of(4, Allocator::Mallard, &short).is_empty());
}

#[test]
fn what_is_set_already_is_not_set_again() {
    let mut f = figures(0.2, 1);
    f.refaults = Some(0.9);
    f.faults = 100_000;
    f.refault_share = 0.3;
    f.peak_rss = 40 << 20;
    f.syscalls = vec![("brk".to_owned(), 500.0, 0.0)];
    let found = advised(&f, &facts());
    assert_eq!(found[0].change, Change::Mallard(Vec::new()));
    let effect = found[0].effect.unwrap();
    assert_eq!((effect.figure, effect.now), (Figure::PageFaults, 1e5));
    assert!(effect.high <= 10_240.0, "{effect:?}");
    let keep = ["trim_threshold=1073741824", "mmap_threshold=1073741824"];
    assert_eq!(options(&found), keep);
    let mut kept = facts();
    kept.set = ["trim_threshold", "mmap_threshold"]
        .map(|name| Setting::new(name, 1 << 30))
        .to_vec();
    assert!(options(&advised(&f, &kept)).is_empty());
}

#[test]
fn huge_pages_are_for_kernels_that_give_them_to_those_that_ask() {
    let mut f = figures(0.2, 1);
    f.fault_share = 0.3;
    f.faults = 70_000;
    f.peak_rss = 300 << 20;
    f.peak_live = Some(280 << 20);
    let of = |huge_pages| {
        let facts = Facts {
            huge_pages,
            ..facts()
        };
        options(&advised(&f, &facts))
    };
    assert_eq!(of(HugePages::OnRequest), ["thp=always", "hugetlb=1"]);
    assert!(of(HugePages::Never).is_empty());
    assert_eq!(of(HugePages::Always), ["thp=always"]);
}

#[test]
fn a_leak_is_found_first_whatever_else_there_is() {
    let mut f = figures(0.3, 1);
    f.grows = Some(Growth {
        bytes_per_second: 1e6,
        fit: 0.99,
        share: 0.9,
    });
    assert_eq!(advised(&f, &facts())[0].change, Change::FindLeaks);
}

#[test]
fn the_gravest_trouble_comes_first() {
    // A third of the CPU time, of a program that hardly computes; and nearly all of its memory.
    let mut f = holding(1, 200 << 20);
    f.user_seconds = 0.2;
    f.fault_share = 0.3;
    f.faults = 60_000;
    let found = advised(&f, &facts());
    assert_eq!(found[0].against, Some(TroubleKey::HeldBack), "{found:?}");
    let mut busy = f.clone();
    (busy.user_seconds, busy.system_seconds) = (6.9, 3.0);
    busy.end = None;
    let found = advised(&busy, &facts());
    assert_eq!(found[0].against, Some(TroubleKey::Growth), "{found:?}");
}

#[test]
fn a_static_program_is_told_of_no_other_allocator() {
    let facts = Facts {
        takes_another: false,
        set: vec![Setting::new("arena_max", 1)],
        ..facts()
    };
    let found = advised(&with_locks(50), &facts);
    assert_eq!(options(&found), ["arena_max=16"]);
    assert_eq!(found.len(), 1);
}

#[test]
fn caches_that_hold_most_of_what_is_free_are_made_smaller() {
    let mut f = figures(0.01, 8);
    f.peak_rss = 200 << 20;
    f.heap = Some(crate::diagnose::model::Heap {
        allocated: 10 << 20,
        active: 150 << 20,
        free: 5 << 20,
        cached: 130 << 20,
        ..Default::default()
    });
    let facts = Facts {
        allocator: Allocator::Mallard,
        ..facts()
    };
    let smaller = ["tcache_max=4096", "dirty_decay_ms=1000"];
    assert_eq!(options(&advised(&f, &facts)), smaller);
    let calls = Calls {
        middle_bytes: Some(0.5),
        ..Calls::default()
    };
    let mut works = figures(0.3, 8);
    works.calls = calls;
    assert_eq!(options(&advised(&works, &facts)), ["tcache_max=256k"]);
}
